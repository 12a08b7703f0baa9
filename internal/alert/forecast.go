package alert

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/jobs"
)

const (
	// planEvery is how often a plan is made, whether or not the last one succeeded: it reads
	// ledgers and records, and lives two days.
	planEvery = 5 * time.Minute
	// planTakes bounds making one. No look waits for it.
	planTakes = time.Minute
)

// foresight is the last plan that this daemon has made.
type foresight struct {
	mu     sync.Mutex // guards all below
	making bool
	begun  time.Time // when the last one was begun
	// made is when (µs, the store's clock) the last one that succeeded was begun; 0: none has.
	made int64
	list []Forecast
	of   []*jobs.Job // the jobs that it covers: a reload makes others

	begunOf []*jobs.Job // the jobs that the last one begun covers
}

// last is what the newest plan of these jobs says, and when (µs) it was begun; 0 if there is none
// yet.
func (f *foresight) last(of []*jobs.Job) ([]Forecast, int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Equal(f.of, of) {
		return nil, 0
	}
	return f.list, f.made
}

// foresee begins to make a plan if one is due, and does not wait for it.
func (w *Watcher) foresee(ctx context.Context) {
	now := w.o.Current()
	if w.o.Forecast == nil || !wants(now.Alerts, kindForecast) {
		return
	}
	f := &w.plan
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.making || !f.begun.IsZero() && time.Since(f.begun) < planEvery && slices.Equal(f.begunOf, now.Jobs) {
		return
	}
	f.making, f.begun, f.begunOf = true, time.Now(), now.Jobs
	w.working.Go(func() { w.makePlan(ctx, planTakes, now.Jobs) })
}

// makePlan makes a plan of jobs. If it fails, the last one is still gone by.
func (w *Watcher) makePlan(ctx context.Context, takes time.Duration, of []*jobs.Job) {
	planning, cancel := context.WithTimeout(ctx, takes)
	defer cancel()
	list, at, err := w.newPlan(planning)
	f := &w.plan
	f.mu.Lock()
	defer f.mu.Unlock()
	f.making = false
	switch {
	case err == nil:
		f.list, f.made, f.of = list, at, of
	case ctx.Err() == nil:
		w.o.Log.Warn("no plan could be made for the alerts of kind forecast; trying again in five minutes", "error", err)
	}
}

// newPlan makes a plan; at is what the store's clock showed before.
func (w *Watcher) newPlan(ctx context.Context) (list []Forecast, at int64, err error) {
	found, err := w.o.State.Job(ctx, documentOf("")) // no alert has that name: it is read for the clock
	if err != nil {
		return nil, 0, err
	}
	list, err = w.o.Forecast(ctx)
	return list, found.Now, err
}

// wants reports whether an alert tells of a kind.
func wants(alerts []config.Alert, kind string) bool {
	return slices.ContainsFunc(alerts, func(a config.Alert) bool { return tells(a, kind) })
}

func tells(a config.Alert, kind string) bool {
	return slices.ContainsFunc(a.On, func(on config.AlertOn) bool { return on.Kind == kind })
}

// Forecast is a pass that, by the plan, will be cut or not start.
type Forecast struct {
	Job, Budget, Limit string       // no limit: it lacked units before the plan
	At                 time.Time    // when it is cut
	Short              int64        // the units it still needs then, less what is left
	NotStarted         bool         // no region of it will start
	Fails              bool         // it asks for more than a limit ever allows
	Lock               *budget.Lock // that refuses it; nil: none does
}

// text says what will become of the pass.
func (f Forecast) text() string {
	if f.Limit == "" {
		return f.Job + " has lacked units already and will not be complete"
	}
	what := "be cut"
	switch {
	case f.NotStarted:
		what = "not start"
	case f.Fails:
		what = "fail"
	}
	text := fmt.Sprintf("%s will %s at %s", f.Job, what, instant(f.At))
	if f.Lock != nil {
		return text + ": " + lockedText(f.Budget, *f.Lock)
	}
	return text + fmt.Sprintf(" by limit %s, %d units short", f.Limit, f.Short)
}

// ofForecast are the facts that a plan shows that was begun at an instant (µs): one for each
// job, by the first of its passes that is cut.
func ofForecast(list []Forecast, all []*jobs.Job, made int64, until func(budget string, at int64) int64) (facts []fact) {
	for _, j := range all {
		f := fact{subject: subject{Kind: kindForecast, Budget: j.Budget, Job: j.Name}, at: made, until: until(j.Budget, made), off: true}
		f.end = j.Name + " is no longer expected to be cut"
		for _, one := range list {
			if one.Job != j.Name || f.on {
				continue
			}
			f.on, f.off = true, false
			f.begin = one.text()
			if one.Lock == nil {
				f.by = one.Limit
			}
		}
		facts = append(facts, f)
	}
	return facts
}
