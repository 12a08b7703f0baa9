package redisstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// calm is a store's timeout of which two fifths are plenty for one attempt.
const calm = 5 * time.Second

// behind is a store behind a proxy, which has been asked for the clock.
func behind(t *testing.T) (*redisstore.Store, *proxy, *redistest.Server) {
	t.Helper()
	server := redistest.Start(t)
	p := startProxy(t, server.Addr, 1, time.Second)
	store := openStore(t, "redis://"+p.addr, redisstore.Options{Timeout: calm})
	charge(t, store, "before")
	return store, p, server
}

// An answer that does not come costs no call: it is asked for again.
func TestLostAnswerIsAskedForAgain(t *testing.T) {
	t.Parallel()
	store, p, _ := behind(t)
	for _, what := range []fate{drop, reset} {
		id := map[fate]string{drop: "dropped", reset: "reset"}[what]
		p.next <- what
		if d := charge(t, store, id); !d.Replayed {
			t.Errorf("%s: %+v, want the replay of what the lost answer told", id, d)
		}
		got := must.Get(decide(t.Context(), store, driver.Item{ID: id + "-open", Operation: "op", Units: 7, Lease: 60_000_000}))(t)
		must.Equal(t, got[0].Result, driver.Granted)
		p.next <- what
		done, err := store.Finish(t.Context(), driver.Finish{Budget: name, Now: time.Now().UnixMicro(), ID: id + "-open", Release: true})
		if err != nil || done.Result != driver.Released || !done.Replayed {
			t.Errorf("release, %s: %+v, %v", id, done, err)
		}
		p.next <- what
		check.Equal(t, must.Get(store.Job(t.Context(), id))(t).Version, 0, "job", id)
		p.next <- what
		if done, err := store.SwapJob(t.Context(), driver.JobSwap{Job: id, Text: []byte("{}")}); err != nil || !done {
			t.Errorf("swap, %s: %v, %v", id, done, err)
		}
	}
	must.Equal(t, used(t, store), 3, "used")
}

// A request that comes late is refused by the script once a later attempt may
// have been answered: a refusal charges nothing, then or afterwards.
func TestRefusalIsNotOvertaken(t *testing.T) {
	t.Parallel()
	for _, script := range []string{"usual.lua", "charge.lua"} {
		t.Run(script, func(t *testing.T) { testRefusalIsNotOvertaken(t, script) })
	}
}

func testRefusalIsNotOvertaken(t *testing.T, script string) {
	store, p, server := behind(t)
	direct := openStore(t, server.URL(0), redisstore.Options{})
	charged := int64(1)
	if script == "charge.lua" { // which decides as long as anything is locked
		locked := driver.Lock{Budget: name, Now: time.Now().UnixMicro(), Limit: "elsewhere", After: 60_000_000, Most: 60_000_000}
		must.Get(driver.Apply(t.Context(), direct, locked))(t)
		charge(t, store, "seen")
		charged++
	}
	got, err := decide(t.Context(), direct, driver.Item{ID: "open", Operation: "op", Units: 100 - charged, Lease: 60_000_000})
	must.Do(t, err)
	must.Equal(t, got[0].Result, driver.Granted)
	held := make(chan struct{})
	p.hold.Store(&held)
	got, err = decide(t.Context(), store, driver.Item{ID: "late", Operation: "op", Units: 1})
	if err != nil || got[0].Result != driver.Refused || p.hold.Load() != nil {
		t.Fatalf("%+v, %v; want the first attempt held and the second refused", got, err)
	}
	if done, err := direct.Finish(t.Context(), driver.Finish{Budget: name, Now: time.Now().UnixMicro(), ID: "open", Release: true}); err != nil || done.Result != driver.Released {
		t.Fatalf("%+v, %v", done, err)
	}
	answered := p.scripts.Load()
	close(held)
	redistest.Await(t, "the first attempt arrives", func() bool { return p.scripts.Load() > answered })
	must.Equal(t, used(t, direct), charged, "used: what was refused is charged")
}

// Where an answer was lost and the deadline came before another, the outcome is
// unknown, not refused as late.
func TestLateAfterALostAnswerIsUnknown(t *testing.T) {
	t.Parallel()
	store, p, _ := behind(t)
	now := time.Now()
	item := driver.Item{ID: "lost", Operation: "op", Units: 1, Deadline: now.Add(calm / 3)}
	p.next <- drop
	got, err := store.Decide(t.Context(), driver.Batch{Budget: name, Now: now.UnixMicro(), Limits: hourly, Items: []driver.Item{item}})
	if err != nil || got.Items[0].Result != driver.OutcomeUnknown || !errors.Is(got.Items[0].Err, driver.ErrUnavailable) {
		t.Fatalf("%+v, %v; want an unknown outcome", got, err)
	}
	if d := charge(t, store, "lost"); !d.Replayed {
		t.Fatalf("%+v, want a replay", d)
	}
	if got, err := decide(t.Context(), store, driver.Item{ID: "open", Operation: "op", Units: 1, Lease: 60_000_000}); err != nil || got[0].Result != driver.Granted {
		t.Fatalf("%+v, %v", got, err)
	}
	now = time.Now()
	p.next <- drop
	done, err := store.Finish(t.Context(), driver.Finish{Budget: name, Now: now.UnixMicro(), ID: "open", Release: true, Deadline: now.Add(calm / 3)})
	must.Is(t, err, driver.ErrUnavailable, done, "the outcome")
	if done, err := store.Finish(t.Context(), driver.Finish{Budget: name, Now: now.UnixMicro(), ID: "open", Release: true}); err != nil || !done.Replayed {
		t.Fatalf("%+v, %v; want a replay", done, err)
	}
}

// A link that takes more than an attempt's share for every answer is given the
// time, once that is known: calls on it succeed, and are sent once.
func TestSlowLinkIsGivenTime(t *testing.T) {
	t.Parallel()
	store, p, _ := behind(t)
	p.each.Store(int64(calm / 2))
	granted := func(id string) bool {
		got, err := decide(t.Context(), store, driver.Item{ID: id, Operation: "op", Units: 1})
		return err == nil && got[0].Result == driver.Granted
	}
	for i := 0; !granted("first"); i++ {
		if i == 3 {
			t.Fatal("a slow link is never given the time it needs")
		}
	}
	before := p.scripts.Load()
	if !granted("second") || !granted("third") {
		t.Fatal("a slow link was not given the time it needs again")
	}
	must.Equal(t, p.scripts.Load()-before, 2, "two calls were sent … times")
}
