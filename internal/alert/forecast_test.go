package alert

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// A plan that hangs or fails delays no other alert, and is made again five minutes later.
func TestAPlanSilencesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nightly)
		var made atomic.Int64
		w.forecast = func(ctx context.Context) ([]Forecast, error) {
			if made.Add(1) == 1 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return nil, errors.New("no ledger")
		}
		defer w.daemon()()
		time.Sleep(2 * LookEvery)
		must.Get(w.budgets["shop/main"].Lock(t.Context(), budget.LockOrder{Until: budget.Until{After: time.Hour}}))(t)
		time.Sleep(2 * LookEvery)
		w.tells("locked begin")
		time.Sleep(planEvery)
		check.Contains(t, w.log.String(), "no plan could be made", "log")
		check.Equal(t, made.Load(), 2, "plans")
		time.Sleep(planEvery)
		check.Equal(t, made.Load(), 3, "plans")
	})
}

// A plan that was made late is gone by, though no look waited for it.
func TestALatePlanIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nightly)
		w.forecast = func(ctx context.Context) ([]Forecast, error) {
			time.Sleep(planTakes - time.Second)
			return []Forecast{{Job: "nightly", Budget: "shop/main", Limit: "daily", Short: 1}}, ctx.Err()
		}
		defer w.daemon()()
		time.Sleep(planTakes + LookEvery)
		w.tells("forecast begin")
		m := w.hook.messages()[0]
		check.Equal(t, m.Job, "nightly", "job")
		check.Equal(t, m.Limit, "daily", "the limit that cuts it")
	})
}

// Of two daemons that plan at different minutes, the one whose plan is older does not end an
// alert of the newer plan.
func TestAnOlderPlanEndsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nightly)
		cut := time.Now().Add(time.Minute) // from here on, plans say so
		w.forecast = func(context.Context) ([]Forecast, error) {
			if time.Now().Before(cut) {
				return nil, nil
			}
			return []Forecast{{Job: "nightly", Budget: "shop/main", Limit: "daily", Short: 1}}, nil
		}
		defer w.daemon()()
		time.Sleep(2 * time.Minute)
		defer w.daemon()()
		time.Sleep(2*planEvery + time.Minute)
		w.tells("forecast begin")
	})
}

// What is seen slowly, by a look that began earlier, changes nothing; a plan neither, even if the
// newer plan changed nothing.
func TestOldFactsChangeNothing(t *testing.T) {
	begun, turns := situation{}.step(fact{at: 10, until: 100, on: true})
	check.Equal(t, len(turns), 1, "turns")
	after, turns := begun.step(fact{at: 9, until: 100, off: true})
	check.Equal(t, len(turns), 0, "turns of an old fact")
	check.Equal(t, after, begun, "after an old fact")

	r := must.Get(read("team", driver.JobDocument{}))(t)
	plan := func(at int64, on bool) bool {
		return r.take("team", []fact{{subject: subject{Kind: kindForecast, Job: "nightly"}, at: at, until: 100, on: on, off: !on}}, true, at)
	}
	check.Equal(t, plan(10, true), true, "the first plan changes the record")
	check.Equal(t, plan(10, true), false, "the same plan changes the record")
	check.Equal(t, plan(30, true), true, "a newer plan changes the record")
	check.Equal(t, plan(20, false), false, "an older plan changes the record")
	check.Equal(t, len(r.Messages), 1, "messages")
	check.Equal(t, plan(40, false), true, "the newest plan changes the record")
	check.Equal(t, len(r.Messages), 2, "messages")
}

func TestForecastTexts(t *testing.T) {
	at := time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
	for want, f := range map[string]Forecast{
		"pull will be cut at 2026-12-01T09:00:00Z by limit daily, 7 units short": {Job: "pull", Limit: "daily", At: at, Short: 7},
		"pull will not start at 2026-12-01T09:00:00Z: shop/main is locked until 2026-12-01T10:00:00Z: closed": {
			Job: "pull", Budget: "shop/main", Limit: "lock", At: at, NotStarted: true, Lock: &budget.Lock{Until: at.Add(time.Hour), Why: "closed"},
		},
		"pull will be cut at 2026-12-01T09:00:00Z: limit core is locked until 2026-12-01T10:00:00Z": {Job: "pull", Limit: "lock", At: at, Lock: &budget.Lock{Limit: "core", Until: at.Add(time.Hour)}},
		"pull has lacked units already and will not be complete":                                    {Job: "pull", At: at},
	} {
		check.Equal(t, f.text(), want, "text")
	}
}

// After a reload, no alert comes from the plan of before.
func TestAPlanOfBeforeAReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nightly)
		fixed := false
		w.forecast = func(context.Context) ([]Forecast, error) {
			if fixed {
				return nil, errors.New("no ledger")
			}
			return []Forecast{{Job: "nightly", Budget: "shop/main", Limit: "daily", Short: 1}}, nil
		}
		watcher := w.watcher()
		watcher.foresee(t.Context())
		synctest.Wait()
		list, _ := watcher.plan.last(w.jobs)
		check.Equal(t, len(list), 1, "forecasts")
		fixed = true
		w.jobs = newWorld(t, nightly).jobs
		list, made := watcher.plan.last(w.jobs)
		check.Equal(t, len(list)+int(made), 0, "of the jobs after a reload")
		watcher.foresee(t.Context())
		synctest.Wait()
		check.Equal(t, watcher.plan.begunOf[0] == w.jobs[0], true, "a plan was begun at once")
	})
}

// A single run tells what its own plan foresees.
func TestOnceForesees(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nightly)
		w.plan = []Forecast{{Job: "nightly", Budget: "shop/main", Limit: "daily", Short: 1}}
		w.watcher().Once(t.Context())
		w.tells("forecast begin")
	})
}
