package redisstore_test

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// refusedAway charges a unit of a store that is out of reach, and reports whether it is known
// that nothing was charged.
func refusedAway(t *testing.T, store *redisstore.Store, id string) (certain bool) {
	t.Helper()
	got, err := decide(t.Context(), store, driver.Item{ID: id, Operation: "op", Units: 1})
	must.Is(t, err, driver.ErrUnavailable, id, got)
	return errors.Is(err, driver.ErrNotCharged)
}

// A call that cannot have been sent, or was refused as a whole, has charged nothing, and the
// error says so.
func TestNotChargedIsTold(t *testing.T) {
	t.Parallel()
	if !refusedAway(t, openStore(t, "redis://"+redistest.FreeAddress(t), redisstore.Options{}), "first") {
		t.Error("the first call, to nobody, may have been charged")
	}

	server := redistest.Start(t)
	store := openStore(t, server.URL(0), redisstore.Options{})
	admin := server.Client()
	charge(t, store, "before")
	configure(t, server, "min-replicas-to-write", "1")
	for _, s := range []*redisstore.Store{store, openStore(t, server.URL(0), redisstore.Options{})} {
		if !refusedAway(t, s, "refused") {
			t.Error("what was answered with NOREPLICAS may have been charged")
		}
	}
	if held := ledgerOf(t, admin, name); len(held) != 1 {
		t.Errorf("the ledger holds %v", held)
	}
	upstream := must.Get(budget.New(store, budget.Spec{Name: name, Limits: hourly, Costs: map[string]budget.Cost{"op": {Units: 1}}}))(t)
	var refused *budget.RefusedError
	if _, err := upstream.Charge(t.Context(), budget.Call{Operation: "op"}); !errors.As(err, &refused) || !refused.NotCharged || strings.Contains(err.Error(), "is unknown") {
		t.Errorf("a call: %v; want it told that nothing was charged", err)
	}

	server.Kill()
	if !refusedAway(t, store, "gone") {
		t.Error("a later call, to nobody, may have been charged")
	}
}

// The first attempt arrives, its connection breaks, and nobody is there for the
// second: what became of the first is not known.
func TestNotChargedIsNotToldOfLostAnswers(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var lose func()
	arrived := sync.OnceFunc(func() { lose() })
	through, end := before(t, server.Addr, func(sent []byte) {
		if bytes.Contains(sent, []byte("lost-with-its-answer")) {
			arrived()
		}
	})
	lose = func() {
		end()
		server.Kill()
	}
	store := openStore(t, "redis://"+through, redisstore.Options{})
	charge(t, store, "before")
	store.ForgetPlans() // usual.lua is not asked for it
	if refusedAway(t, store, "lost-with-its-answer") {
		t.Error("the error says that nothing was charged, though nobody knows")
	}
	if !refusedAway(t, store, "after") {
		t.Error("the call after it, to nobody, may have been charged")
	}
}

// A server that refuses writes refuses to look at a budget too, be it charged or not.
// A look tells processes that held the store for out of reach whether it is back.
func TestLookIsRefusedAsACharge(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := openStore(t, server.URL(0), redisstore.Options{})
	charge(t, store, "before")
	look := func(of string) error {
		_, err := store.Look(t.Context(), driver.Look{Budget: of, Now: time.Now().UnixMicro(), Limits: hourly})
		return err
	}
	for _, refusing := range []bool{false, true, false} {
		least := map[bool]string{false: "0", true: "1"}[refusing]
		configure(t, server, "min-replicas-to-write", least)
		for _, of := range []string{name, "up/never-charged"} {
			if err := look(of); errors.Is(err, driver.ErrUnavailable) != refusing {
				t.Errorf("look at %s with min-replicas-to-write %s: %v", of, least, err)
			}
		}
	}
}
