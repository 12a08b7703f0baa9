package jobs

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/outage"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/check"
)

// threeRegions is a job whose runs look at the budget one after the other.
const threeRegions = "regions = [\"US\", \"GB\", \"DE\"]\nparallel = 1\n"

// A look or a hold that finds no store is repeated for two seconds. A pass with several
// regions waits once.
func TestAPassWaitsForTheStore(t *testing.T) {
	t.Parallel()
	for name, job := range map[string]string{"looks": threeRegions, "holds": holding + "hold = true", "holds each run": holding + "hold = \"run\""} {
		for back, want := range map[time.Duration]Outcome{time.Second: Succeeded, time.Minute: Failed} {
			t.Run(fmt.Sprintf("%s, back in %s", name, back), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, setup{job: job})
					cut := &severed{Store: w.store}
					cut.off.Store(true)
					w.spendOn(cut)
					time.AfterFunc(back, func() { cut.off.Store(false) })
					began := time.Now()
					if p := w.once(); p.Outcome != want || want == Failed && p.Reason != ReasonStore {
						t.Errorf("pass %+v", p)
					}
					if took := time.Since(began); want == Failed && took != storePatience {
						t.Errorf("it failed after %s", took)
					}
					w.logged("the store does not answer; trying again", "job=trending", "for=2s")
				})
			})
		}
	}
}

// slowStore answers late, and counts who asks.
type slowStore struct {
	driver.Store
	off   atomic.Bool
	late  atomic.Int64 // ns
	asked atomic.Int64
}

func (s *slowStore) wait() error {
	s.asked.Add(1)
	if s.off.Load() {
		return errAway
	}
	time.Sleep(time.Duration(s.late.Load())) // in the bubble's time
	return nil
}

func (s *slowStore) Look(ctx context.Context, l driver.Look) (driver.View, error) {
	if err := s.wait(); err != nil {
		return driver.View{}, err
	}
	return s.Store.Look(ctx, l)
}

func (s *slowStore) Decide(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
	if err := s.wait(); err != nil {
		return driver.Decisions{}, err
	}
	return s.Store.Decide(ctx, b)
}

// While one call of a host asks whether the store is back, the host refuses all others. A pass
// that begins at that moment does not fail.
func TestAPassBeginsWhileItsHostProbes(t *testing.T) {
	t.Parallel()
	for name, job := range map[string]string{"looks": threeRegions, "holds": holding + "hold = true"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, setup{job: job})
				since := time.Now()
				slow := &slowStore{Store: w.store}
				host := outage.New(slow, outage.Options{Dir: t.TempDir(), Timeout: time.Second, Clocks: &sqlitestore.Clocks{
					Wall: func() int64 { return time.Now().UnixMicro() },
					Boot: func() (string, int64, error) { return "boot", time.Since(since).Microseconds(), nil },
				}})
				w.spendOn(host)
				b := w.options.Budgets["youtube/key1"]
				slow.off.Store(true)
				_, err := b.Status(t.Context())
				check.Is(t, err, budget.ErrUnavailable)
				after(10 * time.Second)
				slow.off.Store(false)
				slow.late.Store(int64(300 * time.Millisecond))
				probed := make(chan error, 1)
				go func() {
					_, err := b.Status(t.Context())
					probed <- err
				}()
				synctest.Wait()
				before := slow.asked.Load()
				_, err = b.Status(t.Context())
				check.Is(t, err, budget.ErrUnavailable)
				check.Equal(t, slow.asked.Load(), before, "calls that ask the store beside the probe")
				w.succeeds()
				check.NoError(t, <-probed)
				check.NoError(t, host.Close())
			})
		})
	}
}

// A pass that waits for units meets a store that is away for a moment, a second time.
func TestAPassThatWaitsMeetsAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{limit: 16, job: holding + "hold = true\nmax_wait = \"1h\""})
		w.spend(16)
		after(23*time.Hour + 30*time.Minute)
		cut := &severed{Store: w.store}
		w.spendOn(cut)
		const half = time.Second / 2
		cut.off.Store(true)
		time.AfterFunc(half, func() { cut.off.Store(false) })
		time.AfterFunc(30*time.Minute-half, func() { cut.off.Store(true) })
		time.AfterFunc(30*time.Minute+half, func() { cut.off.Store(false) })
		began := time.Now()
		w.succeeds()
		if took := time.Since(began); took < 30*time.Minute+half {
			t.Errorf("it succeeded after %s: it did not meet the outage", took)
		}
	})
}
