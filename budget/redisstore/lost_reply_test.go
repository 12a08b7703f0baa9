package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/budget/redisstore/redistest"
)

const (
	manyCharges = 5000
	clients     = 8
)

// wide has room for all charges of a test.
var wide = []budget.Limit{{Name: "hour", Limit: 1_000_000, Counts: budget.CountUnits, Window: budget.RollingWindow(time.Hour)}}

// Of the replies to scripts 30 in 100 are dropped, reset or delayed after the
// server ran them. Each id is charged once; what stays unknown is marked so, and
// asked for again with its id.
func TestLostReplies(t *testing.T) {
	for name, start := range map[string]func(testing.TB, uint64) redistest.Setup{
		"single":   redistest.Single,
		"sentinel": redistest.Watched,
		"cluster":  func(t testing.TB, seed uint64) redistest.Setup { s, _ := redistest.StartCluster(t, seed); return s },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			seed := rand.Uint64()
			loseReplies(t, start(t, seed), seed)
		})
	}
}

func loseReplies(t *testing.T, s redistest.Setup, seed uint64) {
	store := openStore(t, s.URL, redisstore.Options{})
	budgets := []string{"up/key1", "up/key2", "up/key3", "up/key4"}
	for _, name := range budgets { // connections and scripts are there
		if _, err := store.Decide(t.Context(), budget.Batch{Budget: name, Now: time.Now().UnixMicro(), Limits: wide}); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range s.Proxies {
		p.Rate.Store(30)
	}
	began := time.Now()
	var mu sync.Mutex
	var group sync.WaitGroup
	granted, replayed := map[string]int64{}, 0
	var unknown []string
	for c := range clients {
		group.Add(1)
		go func() {
			defer group.Done()
			for n := range manyCharges / clients {
				id := fmt.Sprintf("%d-%d", c, n)
				d, err := chargeOn(store, budgets[n%len(budgets)], id, int64(n%7))
				mu.Lock()
				switch {
				case err == nil && d.Result == budget.Granted:
					granted[id] = d.At
					if d.Replayed {
						replayed++
					}
				case errors.Is(err, budget.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
					unknown = append(unknown, id)
				default:
					t.Errorf("charge %s: %+v, %v", id, d, err)
				}
				mu.Unlock()
			}
		}()
	}
	group.Wait()
	took := time.Since(began)
	lost := map[string]int{}
	for _, p := range s.Proxies {
		p.Rate.Store(0)
		for fate, n := range p.Counts() {
			lost[fate] += n
		}
	}
	for _, id := range unknown {
		n, err := strconv.Atoi(id[strings.Index(id, "-")+1:])
		if err != nil {
			t.Fatal(err)
		}
		d, err := chargeOn(store, budgets[n%len(budgets)], id, int64(n%7))
		if err != nil || d.Result != budget.Granted {
			t.Fatalf("charge %s again: %+v, %v", id, d, err)
		}
		granted[id] = d.At
	}
	t.Logf("seed %d: %d charges in %s; replies %v; %d were answered by a retry, %d stayed unknown", seed, len(granted), took, lost, replayed, len(unknown))
	calls, units := int64(0), int64(0)
	for _, name := range budgets {
		view, err := store.Spent(t.Context(), budget.SpentQuery{Budget: name, Now: time.Now().UnixMicro(), By: budget.ByOperation})
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range view.Rows {
			calls, units = calls+row.Calls, units+row.Units
		}
	}
	want := int64(0)
	for n := range manyCharges / clients {
		want += clients * int64(n%7)
	}
	if calls != manyCharges || units != want || len(granted) != manyCharges {
		t.Fatalf("the ledgers hold %d calls of %d units, %d ids were granted; want %d of %d", calls, units, len(granted), manyCharges, want)
	}
	if all := lost["dropped"] + lost["reset"] + lost["delayed"]; all*100 < 20*(all+lost["passed"]) || replayed == 0 {
		t.Fatalf("too few replies were lost to show anything: %v, %d replays", lost, replayed)
	}
}

func chargeOn(store *redisstore.Store, name, id string, units int64) (budget.Decision, error) {
	ctx, cancel := context.WithTimeout(context.Background(), redisstore.DefaultTimeout)
	defer cancel()
	got, err := store.Decide(ctx, budget.Batch{Budget: name, Now: time.Now().UnixMicro(), Limits: wide, Items: []budget.Item{{ID: id, Operation: "op", Units: units}}})
	if err != nil {
		return budget.Decision{}, err
	}
	return got.Items[0], got.Items[0].Err
}

// Calls that were in flight when the server was stopped, and given up, are not
// charged when it goes on.
func TestNothingIsChargedLate(t *testing.T) {
	server := redistest.Start(t)
	store := openStore(t, server.URL(0), redisstore.Options{})
	charge(t, store, "before")
	for round := range 3 {
		server.Signal(syscall.SIGSTOP)
		var group sync.WaitGroup
		for i := range 30 {
			group.Add(1)
			go func() {
				defer group.Done()
				if d, err := chargeOn(store, name, fmt.Sprintf("late-%d-%d", round, i), 1); err == nil {
					t.Errorf("a stopped server granted %+v", d)
				}
			}()
		}
		group.Wait()
		server.Signal(syscall.SIGCONT)
		patientStore := openStore(t, server.URL(0), redisstore.Options{Timeout: patient})
		charge(t, patientStore, fmt.Sprint("after-", round))
		if got := used(t, patientStore); got != int64(2+round) {
			t.Fatalf("used %d in round %d, want %d: a call that was given up was charged", got, round, 2+round)
		}
	}
}
