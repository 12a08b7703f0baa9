package jobs

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// aliveName is the document that lists the daemons that follow jobs.
const aliveName = "@daemons"

// alive is the content of that document.
type alive struct {
	Daemons []living `json:"daemons"`
}

// living is a daemon, alive until an instant (µs, the store's clock) unless it renews
// that.
type living struct {
	Holder string `json:"holder"`
	Since  int64  `json:"since"` // µs, by the store's wall clock
	Until  int64  `json:"until"`
}

// Daemon is a live daemon that follows jobs.
type Daemon struct {
	Host  string  `json:"host"` // "in process P on HOST"
	Since Instant `json:"since"`
}

// Daemons lists the live daemons, in the order in which they started. A daemon that
// crashed is listed for about a minute more.
func Daemons(ctx context.Context, in State) ([]Daemon, error) {
	found, err := in.Job(ctx, aliveName)
	if err != nil {
		return nil, err
	}
	a, err := readDocument[alive](aliveName, found)
	if err != nil {
		return nil, err
	}
	list := []Daemon{}
	at := clocks{now: found.Now}
	for _, l := range a.Daemons {
		if !at.past(l.Until, 4*DefaultHeartbeat) {
			list = append(list, Daemon{placeOf(l.Holder), InstantOf(l.Since)})
		}
	}
	return list, nil
}

// live registers the daemon as alive until it is drained.
func (d *daemon) live() {
	me := newHolder()
	for {
		if len(d.runner.list()) > 0 { // without jobs it only decides charges
			ctx, cancel := context.WithTimeout(d.ctx, d.runner.options.Heartbeat)
			d.registerAlive(ctx, me, d.runner.docs.hold())
			cancel()
		}
		if waitFor(d.soft, d.runner.docs.hold()/2) != nil {
			break
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.ctx), finalWriteTimeout)
	defer cancel()
	d.registerAlive(ctx, me, 0)
}

// registerAlive registers the daemon as alive for a while from now; with hold 0 it
// removes the registration.
func (d *daemon) registerAlive(ctx context.Context, me string, hold time.Duration) {
	err := changeDocument(ctx, d.runner.docs.state, aliveName, d.runner.now, 0, func(a *alive, at clocks) (edit, error) {
		mine := living{Holder: me, Since: at.store}
		before := len(a.Daemons)
		a.Daemons = slices.DeleteFunc(a.Daemons, func(l living) bool {
			if l.Holder == me {
				mine.Since = l.Since
			}
			return l.Holder == me || at.past(l.Until, d.runner.docs.hold())
		})
		if hold == 0 && len(a.Daemons) == before {
			return edit{}, errStays
		}
		if hold > 0 {
			mine.Until = at.now + hold.Microseconds()
			a.Daemons = append(a.Daemons, mine)
			slices.SortStableFunc(a.Daemons, func(a, b living) int { return cmp.Compare(a.Since, b.Since) })
		}
		return edit{}, nil
	})
	if err != nil {
		d.runner.log.Debug("this daemon could not be registered as alive", "error", err)
	}
}
