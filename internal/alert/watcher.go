package alert

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/jobs"
)

// Options configure a Watcher. State and Current are required.
type Options struct {
	State driver.JobStore
	// Current returns what is configured now.
	Current func() Now
	// Forecast returns the passes that will be cut; nil: there is no plan.
	Forecast func(ctx context.Context) ([]Forecast, error)
	Env      func(name string) (string, bool) // os.LookupEnv; nil means that
	Log      *slog.Logger                     // nil discards it
	// Count is called for each try to deliver a message; nil: for none.
	Count func(alert string, result Result)
	// After, unless nil, is what has told of the store until now. The Watcher ends it.
	After *Unreached

	tls *tls.Config // of mail servers; nil means the system's authorities
}

// Now is what is configured at a time.
type Now struct {
	Alerts  []config.Alert
	Budgets map[string]*budget.Budget
	Jobs    []*jobs.Job
}

// Result is what became of a try to deliver something.
type Result string

// The results.
const (
	Delivered Result = "delivered"
	Failed    Result = "failed"   // it is tried again
	GivenUp   Result = "given_up" // it was tried for a day
)

// Watcher looks at budgets and jobs, and delivers what there is to tell. Any number of daemons
// may have one on the same store.
type Watcher struct {
	o      Options
	holder string // of claims
	sender *sender
	outage *outage
	plan   foresight
	// The loop alone uses this: when the last pass of each job ended that it has read.
	ended map[string]int64

	mu         sync.Mutex // guards delivering
	delivering map[string]bool
	working    sync.WaitGroup
}

// New makes a Watcher.
func New(o Options) *Watcher {
	if o.Env == nil {
		o.Env = os.LookupEnv
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Count == nil {
		o.Count = func(string, Result) {}
	}
	w := &Watcher{o: o, holder: rand.Text(), outage: &outage{}, sender: newSender(o.Env, o.tls), ended: map[string]int64{}, delivering: map[string]bool{}}
	if o.After != nil {
		o.After.handOver(w)
	}
	return w
}

// stopTakes is how long Run goes on after its end, to deliver what is due.
const stopTakes = 5 * time.Second

// StopTakes is how long a stop takes at most: first [Pinger.Close], then [Watcher.Run] once until
// has ended.
const StopTakes = stopTakes + runEnds

// runEnds is how long Run takes at most once until has ended.
const runEnds = stopTakes + 2*recordTakes

// Run looks and delivers until until ends. Then it looks once more, and tries what is due, for
// a few seconds, unless ctx ends. Messages that are not delivered by then are left for other
// daemons, or for the next start.
func (w *Watcher) Run(ctx, until context.Context) {
	working, cancel := context.WithCancel(ctx)
	defer cancel()
	// what is under way when until ends, a look too, has the same few seconds
	defer context.AfterFunc(until, func() { time.AfterFunc(stopTakes, cancel) })()
	planning, noPlans := context.WithCancel(working)
	defer noPlans()
	defer context.AfterFunc(until, noPlans)()
	looks := time.NewTicker(LookEvery)
	defer looks.Stop()
	for until.Err() == nil {
		w.foresee(planning)
		w.round(working)
		select {
		case <-looks.C:
		case <-until.Done():
		}
	}
	w.round(working)
	w.working.Wait()
	leaving, end := context.WithTimeout(context.WithoutCancel(ctx), recordTakes)
	defer end()
	w.outage.leave(leaving, w)
}

// Once looks once, by a plan that it makes first, and tries what is due: for a few seconds each.
func (w *Watcher) Once(ctx context.Context) {
	if now := w.o.Current(); w.o.Forecast != nil && wants(now.Alerts, kindForecast) {
		w.makePlan(ctx, stopTakes, now.Jobs)
	}
	until, cancel := context.WithCancel(ctx)
	cancel()
	w.Run(ctx, until)
}

// round looks, and begins to deliver what is due.
func (w *Watcher) round(ctx context.Context) {
	w.look(ctx)
	for _, a := range w.o.Current().Alerts {
		w.alone(a.Name, func() { w.deliver(ctx, a) })
	}
}

// alone begins to deliver the messages of an alert, unless that is under way.
func (w *Watcher) alone(alert string, deliver func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.delivering[alert] {
		return
	}
	w.delivering[alert] = true
	w.working.Go(func() {
		defer func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.delivering[alert] = false
		}()
		deliver()
	})
}

// jittered is a wait of half of d to all of it.
func jittered(d time.Duration) time.Duration {
	return d/2 + time.Duration(mathrand.Float64()*float64(d/2))
}
