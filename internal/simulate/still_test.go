package simulate

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// still is a daemon's process while it is stopped: nothing that it does gets out, and
// nothing gets in, until it goes on. What was sent before arrives. Its deadlines pass.
type still struct {
	goesOn atomic.Pointer[chan struct{}] // nil: it is not stopped
}

// hold waits while the process is stopped.
func (s *still) hold() {
	if goesOn := s.goesOn.Load(); goesOn != nil {
		<-*goesOn
	}
}

// begun is the context of a call that begins, and how much later it begins than it was made.
// Timers make calls also while the process is stopped. In truth such a call is made when the
// process goes on, and has all its time: one that ran out of time would have the host take the
// store for away, and nothing would be charged that could be refused.
func (s *still) begun(ctx context.Context, now func() time.Time) (context.Context, time.Duration) {
	if s.goesOn.Load() == nil {
		return ctx, 0
	}
	made := now()
	s.hold()
	return context.WithoutCancel(ctx), now().Sub(made)
}

// transport is a daemon's way to the upstream.
type transport struct{ daemon *daemon }

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	d := t.daemon
	d.still.hold()
	d.machine.strike(d, r)
	return d.machine.network.ask(r, d.still.hold)
}

// stop has the next daemon that fills the day stand still, until an instant.
func (m *machine) stop(s span) {
	m.toStop.Store(&s)
}

// strike stops the process of a daemon that asks for something, if it is to be, with
// its request on the way.
func (m *machine) strike(d *daemon, r *http.Request) {
	s := m.toStop.Load()
	if s == nil || r.URL.Path != listings {
		return
	}
	// A slow answer may come when the next heartbeat has already ended the pass: then it
	// makes no charge that could be refused.
	if there, back := m.network.latency(r); there+back > 10*time.Second || !m.toStop.CompareAndSwap(s, nil) {
		return
	}
	goesOn := make(chan struct{})
	d.still.goesOn.Store(&goesOn)
	m.stopped.Add(1)
	m.waking.Go(func() {
		m.clock.until(s.at.Add(s.dur))
		d.still.goesOn.Store(nil)
		close(goesOn)
	})
}

// decide has the store decide a batch of a daemon, and holds it to who may charge: a
// pass that was recorded as lost does not any more.
func (m *machine) decide(d *daemon, b driver.Batch, decide func() (driver.Decisions, error)) (driver.Decisions, error) {
	late := make([]bool, len(b.Items))
	for i, item := range b.Items {
		late[i] = !item.DryRun && !item.Recorded && m.history.isLost(item.Labels.Run)
	}
	done, err := decide()
	if err != nil {
		return done, err
	}
	m.network.decided(b, done)
	for i, got := range done.Items {
		if item := &b.Items[i]; len(item.Needs) > 0 && !item.DryRun && got.Result == driver.Granted && !got.Replayed {
			m.holds.Add(1)
		}
		switch {
		case late[i] && got.Result == driver.Fenced:
			m.refused.Add(1)
		case late[i] && got.Result == driver.Granted && !got.Replayed:
			m.t.Errorf("%s: daemon %d charged %d units for %s, a pass that another had recorded as lost", m.clock.now().In(pacific).Format(time.DateTime), d.number+1, got.Units, b.Items[i].Labels.Run)
		}
	}
	return done, nil
}
