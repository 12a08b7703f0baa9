package redisstore_test

import (
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// stop stops a server, and returns when it stands.
func stop(t *testing.T, s *redistest.Server) {
	t.Helper()
	s.Signal(syscall.SIGSTOP)
	pid := strconv.Itoa(s.PID())
	redistest.Await(t, "the server stands still", func() bool {
		state, err := exec.Command("ps", "-o", "state=", "-p", pid).Output()
		return err == nil && strings.HasPrefix(strings.TrimSpace(string(state)), "T")
	})
}

func goOn(t *testing.T, s *redistest.Server) {
	t.Helper()
	s.Signal(syscall.SIGCONT)
}

var evalshaCalls = regexp.MustCompile(`cmdstat_evalsha:calls=(\d+)`)

// scriptRuns is how many scripts a server has run by their names.
func scriptRuns(admin *redis.Client) int {
	found := evalshaCalls.FindStringSubmatch(info(admin, "commandstats"))
	if found == nil {
		return 0
	}
	n, _ := strconv.Atoi(found[1])
	return n
}

// Many calls at once reach a server that stands still. It goes on when some have
// been given up, and finds them all waiting: it charges none that was given up,
// by its own deadline, by that of its batch, or by the store's timeout, and
// those whose time has not come once.
func TestLateChargesOfManyCalls(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client()
	const each = 4
	short := openStore(t, server.URL(0), redisstore.Options{Timeout: time.Second})
	long := openStore(t, server.URL(0), redisstore.Options{})
	shared := must.Get(budget.New(long, budget.Spec{
		Name: name, Limits: hourly, Costs: map[string]budget.Cost{"op": {Units: 1}}, Timeout: time.Second,
	}))(t)
	chargeAtLast(t, short, "before-short")
	charge(t, long, "before-long")
	runs := scriptRuns(admin)
	stop(t, server)

	var givenUp, waiting sync.WaitGroup
	unavailable := func(what string, try func(id string) error) {
		for i := range each {
			givenUp.Go(func() { check.Is(t, try(fmt.Sprint(what, "-", i)), driver.ErrUnavailable, what, i) })
		}
	}
	unavailable("by-timeout", func(id string) error {
		_, err := decide(t.Context(), short, driver.Item{ID: id, Operation: "op", Units: 1}, driver.Item{ID: id + "+", Operation: "op", Units: 1})
		return err
	})
	unavailable("together", func(id string) error {
		_, err := shared.Charge(t.Context(), budget.Call{Operation: "op", ID: id})
		return err
	})
	kept := map[string]int64{"before-short": 1, "before-long": 1, "after": 1}
	deadline := time.Now().Add(200 * time.Millisecond)
	for i := range each {
		id := fmt.Sprint("kept-", i)
		kept[id] = 2
		waiting.Go(func() {
			got, err := decide(t.Context(), long, driver.Item{ID: id, Operation: "op", Units: 2})
			if err != nil || got[0].Result != driver.Granted {
				t.Errorf("%s: %+v, %v; want it granted once the server goes on", id, got, err)
			}
		})
		// The batch waits, one of its items does not.
		half := fmt.Sprint("half-", i)
		kept[half] = 2
		waiting.Go(func() {
			got, err := decide(t.Context(), long,
				driver.Item{ID: half + "-late", Operation: "op", Units: 1, Deadline: deadline},
				driver.Item{ID: half, Operation: "op", Units: 2})
			if err != nil || got[0].Result != driver.Late || got[1].Result != driver.Granted {
				t.Errorf("%s: %+v, %v; want the first late and the second granted", half, got, err)
			}
		})
	}
	givenUp.Wait()
	redistest.Await(t, "the deadline of the items within batches", func() bool { return time.Now().After(deadline) })
	goOn(t, server)
	waiting.Wait()
	charge(t, openStore(t, server.URL(0), redisstore.Options{}), "after")
	// What was given up has come to the server all the same, some of it twice.
	redistest.Await(t, "all of them arrived", func() bool { return scriptRuns(admin) >= runs+3*each })
	if got := ledgerOf(t, admin, name); !maps.Equal(got, kept) {
		t.Fatalf("ledger %v, want %v", got, kept)
	}
}
