package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// A charge whose answer was lost is not said to be uncharged, neither then nor while the
// breaker keeps the host from asking; and sent again it is charged once.
func TestChargeWhoseAnswerWasLost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for timeout := 2 * time.Second; !chargeWithoutAnswer(t, server, timeout); timeout *= 2 { // it was not sent in that time
		if timeout > patience {
			t.Fatalf("within %s a charge is not sent", timeout)
		}
	}
}

// chargeWithoutAnswer has a store with this timeout lose the answer to a charge. sent: the charge
// reached the server.
func chargeWithoutAnswer(t *testing.T, server *redistest.Server, timeout time.Duration) (sent bool) {
	t.Helper()
	proxy := redistest.StartProxy(t, server.Addr, 1)
	config := writeConfig(t, strings.NewReplacer("sqlite:quotactl.db", "redis://"+proxy.Addr, `timeout = "1m"`, fmt.Sprintf("timeout = %q", timeout)).Replace(serveConfig))
	charge := func(args ...string) (code int, charged, replayed, said string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		code = run(t.Context(), append([]string{"charge", "shop/main", "get", "--json", "-c", config}, args...), &stdout, &stderr, noEnv)
		charged, err := at(stdout.Bytes(), "charged")
		must.Do(t, err)
		if replayed, err = at(stdout.Bytes(), "replayed"); err != nil {
			t.Fatal(err)
		}
		return code, charged, replayed, stderr.String()
	}
	first := fmt.Sprint("first-", timeout)
	const keptAway = "asked once in"
	b := must.Get(open.Budget(t.Context(), config, "shop/main"))(t)
	defer func() { _ = b.Close() }()
	for range 2 { // it knows the server's clock, and the server the scripts
		redistest.Await(t, "a charge", func() bool { // a busy machine may take longer than the store's timeout
			_, err := b.Charge(t.Context(), budget.Call{Operation: "get"})
			return err == nil
		})
	}
	proxy.Drop.Store(true)
	var refused *budget.RefusedError
	if _, err := b.Charge(t.Context(), budget.Call{Operation: "get", ID: first}); !errors.As(err, &refused) {
		t.Fatalf("an answer that was lost: %v", err)
	} else if refused.NotCharged {
		return false
	}
	lost := func(want string, args ...string) {
		t.Helper()
		redistest.Await(t, "the breaker to keep a call away", func() bool {
			code, charged, _, said := charge(args...)
			away := strings.Contains(said, keptAway)
			if code != exitUnavailable || away && charged != want || !away && charged != "null" || (charged == "null") != strings.Contains(said, "is charged is unknown") {
				t.Fatalf("%v: exit code %d, charged %s, want %s: %s", args, code, charged, want, said)
			}
			return away
		})
	}
	lost("null", "--id", first)
	lost("false") // it made the id, and did not send it
	proxy.Drop.Store(false)
	redistest.Await(t, "the store to be back", func() bool {
		code, charged, replayed, said := charge("--id", first)
		if code == exitDone && (charged != "true" || replayed != "true") {
			t.Errorf("charged %s, replayed %s: %s", charged, replayed, said)
		}
		return code == exitDone
	})
	return true
}
