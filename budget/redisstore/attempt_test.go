package redisstore_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// calm is a store's timeout of which two fifths are mostly plenty for one attempt.
const calm = time.Second

// errNotSent is a first attempt whose time was over before it was sent.
var errNotSent = fmt.Errorf("the first attempt did not reach the server: %w", driver.ErrUnavailable)

// behind is a store behind a proxy, which has been asked for the clock.
func behind(t *testing.T, timeout time.Duration) (*redisstore.Store, *proxy, *redistest.Server) {
	t.Helper()
	server := redistest.Start(t)
	p := startProxy(t, server.Addr, 1, time.Second)
	store := openStore(t, "redis://"+p.addr, redisstore.Options{Timeout: timeout})
	chargeAtLast(t, store, "before")
	return store, p, server
}

// An answer that does not come costs no call: it is asked for again.
func TestLostAnswerIsAskedForAgain(t *testing.T) {
	t.Parallel()
	for name, what := range map[string]fate{"dropped": drop, "reset": reset} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inTime(t, calm, func(timeout time.Duration) error { return loseAnswersTo(t, what, timeout) })
		})
	}
}

// loseAnswersTo has a store lose the first answer to each of its calls.
func loseAnswersTo(t *testing.T, what fate, timeout time.Duration) error {
	t.Helper()
	store, p, _ := behind(t, timeout)
	p.next <- what
	d, err := chargeInTime(t, store, "lost")
	if err != nil {
		return err
	}
	if !d.Replayed {
		return fmt.Errorf("%w: %+v, want the replay of what the lost answer told", errNotSent, d)
	}
	if d, err = decideInTime(store, driver.Item{ID: "open", Operation: "op", Units: 7, Lease: time.Hour.Microseconds()}); err != nil {
		return err
	}
	must.Equal(t, d.Result, driver.Granted)
	p.next <- what
	done, err := driver.FinishOne(t.Context(), store, name, time.Now().UnixMicro(), driver.Finish{ID: "open", Release: true})
	if err != nil {
		return err
	}
	must.Equal(t, done.Result, driver.Released)
	if !done.Replayed {
		return fmt.Errorf("%w: %+v, want the replay of a release", errNotSent, done)
	}
	p.next <- what
	job, err := store.Job(t.Context(), "j")
	if err != nil {
		return err
	}
	check.Equal(t, job.Version, 0, "job")
	p.next <- what
	swapped, err := store.SwapJob(t.Context(), driver.JobSwap{Job: "j", Text: []byte("{}")})
	if err != nil {
		return err
	}
	check.Equal(t, swapped, true, "swapped")
	must.Equal(t, used(t, openStore(t, "redis://"+p.addr, redisstore.Options{})), 2, "used")
	return nil
}

// A request that comes late is refused by the script once a later attempt may
// have been answered: a refusal charges nothing, then or afterwards.
func TestRefusalIsNotOvertaken(t *testing.T) {
	t.Parallel()
	for _, script := range []string{"usual.lua", "charge.lua"} {
		t.Run(script, func(t *testing.T) {
			inTime(t, calm, func(timeout time.Duration) error { return testRefusalIsNotOvertaken(t, script, timeout) })
		})
	}
}

func testRefusalIsNotOvertaken(t *testing.T, script string, timeout time.Duration) error {
	t.Helper()
	store, p, server := behind(t, timeout)
	direct := openStore(t, server.URL(0), redisstore.Options{})
	charged := int64(1)
	if script == "charge.lua" { // which decides as long as anything is locked
		locked := driver.Lock{Budget: name, Now: time.Now().UnixMicro(), Limit: "elsewhere", After: time.Hour.Microseconds(), Most: time.Hour.Microseconds()}
		must.Get(driver.Apply(t.Context(), direct, locked))(t)
		chargeAtLast(t, store, "seen")
		charged++
	}
	got, err := decide(t.Context(), direct, driver.Item{ID: "open", Operation: "op", Units: 100 - charged, Lease: time.Hour.Microseconds()})
	must.Do(t, err)
	must.Equal(t, got[0].Result, driver.Granted)
	held := make(chan struct{})
	goesOn := sync.OnceFunc(func() { close(held) })
	defer goesOn()
	p.hold.Store(&held)
	d, err := decideInTime(store, driver.Item{ID: "late", Operation: "op", Units: 1})
	if err != nil {
		return err
	}
	if d.Result != driver.Refused || p.hold.Load() != nil {
		t.Fatalf("%+v; want the first attempt held and the second refused", d)
	}
	if done, err := driver.FinishOne(t.Context(), direct, name, time.Now().UnixMicro(), driver.Finish{ID: "open", Release: true}); err != nil || done.Result != driver.Released {
		t.Fatalf("%+v, %v", done, err)
	}
	answered := p.scripts.Load()
	goesOn()
	redistest.Await(t, "the first attempt arrives", func() bool { return p.scripts.Load() > answered })
	must.Equal(t, used(t, direct), charged, "used: what was refused is charged")
	return nil
}

// Where an answer was lost and the deadline came before another, the outcome is
// unknown, not refused as late.
func TestLateAfterALostAnswerIsUnknown(t *testing.T) {
	t.Parallel()
	inTime(t, 2*calm, func(timeout time.Duration) error {
		store, p, _ := behind(t, timeout)
		patientStore := openStore(t, "redis://"+p.addr, redisstore.Options{})
		now := time.Now()
		item := driver.Item{ID: "lost", Operation: "op", Units: 1, Deadline: now.Add(timeout / 3)}
		p.next <- drop
		got, err := store.Decide(t.Context(), driver.Batch{Budget: name, Now: now.UnixMicro(), Limits: hourly, Items: []driver.Item{item}})
		if err != nil || len(p.next) > 0 {
			return fmt.Errorf("%w before an answer was lost: %+v, %w", driver.ErrUnavailable, got, err)
		}
		if d := got.Items[0]; d.Result != driver.OutcomeUnknown || !errors.Is(d.Err, driver.ErrUnavailable) {
			t.Fatalf("%+v; want an unknown outcome", d)
		}
		if d := charge(t, patientStore, "lost"); !d.Replayed {
			return fmt.Errorf("%w before it was charged: %+v, want a replay", driver.ErrUnavailable, d)
		}
		must.Equal(t, must.Get(decide(t.Context(), patientStore, driver.Item{ID: "open", Operation: "op", Units: 1, Lease: time.Hour.Microseconds()}))(t)[0].Result, driver.Granted)
		now = time.Now()
		p.next <- drop
		done, err := driver.FinishOne(t.Context(), store, name, now.UnixMicro(), driver.Finish{ID: "open", Release: true, Deadline: now.Add(timeout / 3)})
		if len(p.next) > 0 {
			return fmt.Errorf("%w before an answer was lost: %+v, %w", driver.ErrUnavailable, done, err)
		}
		must.Is(t, err, driver.ErrUnavailable, done, "the outcome")
		if done := must.Get(driver.FinishOne(t.Context(), patientStore, name, now.UnixMicro(), driver.Finish{ID: "open", Release: true}))(t); !done.Replayed {
			return fmt.Errorf("%w before it was released: %+v, want a replay", driver.ErrUnavailable, done)
		}
		return nil
	})
}

// A link that takes more than an attempt's share for every answer is given the
// time, once that is known: calls on it succeed, and are sent once.
func TestSlowLinkIsGivenTime(t *testing.T) {
	t.Parallel()
	inTime(t, calm, func(timeout time.Duration) (err error) {
		store, p, _ := behind(t, timeout)
		p.each.Store(int64(timeout / 2))
		for i := 0; i == 0 || err != nil; i++ {
			if i == 4 {
				return fmt.Errorf("a slow link is never given the time it needs: %w", err)
			}
			_, err = chargeInTime(t, store, "first")
		}
		before := p.scripts.Load()
		for _, id := range []string{"second", "third"} {
			if _, err := chargeInTime(t, store, id); err != nil {
				return fmt.Errorf("a slow link was not given the time it needs again: %w", err)
			}
		}
		must.Equal(t, p.scripts.Load()-before, 2, "two calls were sent … times")
		return nil
	})
}
