package alert

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
)

// outageAfter is how long a daemon must have had no answer from the store before it tells.
const outageAfter = 10 * time.Second

// outagePeriod is how long a daemon tells of no further outage.
const outagePeriod = time.Hour

// outage is whether this daemon reaches the store. Meanwhile daemons cannot agree on who tells,
// so each that has an outage tells of its own, from memory.
type outage struct {
	mu sync.Mutex // guards all below
	// since is when the store first failed to answer; zero: it answers. begun: an alert said
	// so.
	since time.Time
	begun bool
	// last is when the last alert said so.
	last time.Time
	// waiting are the messages to be sent, by alert.
	waiting map[string][]unsent
}

// unsent is a message that this daemon alone knows of.
type unsent struct {
	Message
	since, next time.Time
	tries       int
}

// saw notes the answer of the store to a look.
func (o *outage) saw(w *Watcher, alerts []config.Alert, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	out := errors.Is(err, budget.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
	host, _ := os.Hostname()
	switch {
	case out && o.since.IsZero():
		o.since = now
	case out && !o.begun && now.Sub(o.since) >= outageAfter && (o.last.IsZero() || now.Sub(o.last) >= outagePeriod):
		o.begun, o.last = true, now
		o.tell(w, alerts, Begin, now, "the store has not answered the daemon on "+host+" since "+instant(o.since))
	case err == nil && !o.since.IsZero():
		if o.begun {
			o.tell(w, alerts, End, now, "the store answers the daemon on "+host+" again")
		}
		o.since, o.begun = time.Time{}, false
	}
}

func (o *outage) tell(w *Watcher, alerts []config.Alert, phase Phase, at time.Time, text string) {
	for _, a := range alerts {
		if !tells(a, kindOutage) {
			continue
		}
		m := newMessage(a.Name+"|"+w.holder, subject{Kind: kindOutage}, turn{phase, at.UnixMicro(), o.since.UnixMicro(), text})
		if o.waiting == nil {
			o.waiting = map[string][]unsent{}
		}
		o.waiting[a.Name] = append(o.waiting[a.Name], unsent{Message: m, since: at, next: at})
	}
}

// deliver sends what is due of an alert, in order.
func (o *outage) deliver(ctx context.Context, w *Watcher, a config.Alert) {
	for {
		o.mu.Lock()
		list := o.waiting[a.Name]
		o.mu.Unlock()
		if len(list) == 0 || list[0].next.After(time.Now()) || ctx.Err() != nil {
			return
		}
		m := list[0]
		err := w.sender.deliver(ctx, a, m.Message)
		result := Delivered
		var partly *partlyError
		if errors.As(err, &partly) {
			m.rest = partly.rest
		}
		switch {
		case err == nil, partly != nil && partly.final:
		case time.Since(m.since) >= keepTrying:
			result = GivenUp
		case ctx.Err() == nil:
			result = Failed
			m.tries++
			m.next = time.Now().Add(jittered(waitAfter(m.tries)))
		default:
			return
		}
		w.o.Count(a.Name, result)
		if err != nil {
			w.o.Log.Warn("an alert of an outage could not be delivered", "alert", a.Name, "phase", m.Phase, "error", err, "tries", m.tries)
		}
		o.mu.Lock()
		if o.waiting[a.Name] = slices.Clone(o.waiting[a.Name][1:]); result == Failed {
			o.waiting[a.Name] = slices.Insert(o.waiting[a.Name], 0, m)
		}
		o.mu.Unlock()
	}
}

// lose logs what was not delivered.
func (o *outage) lose(log *slog.Logger) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for alert, list := range o.waiting {
		if len(list) > 0 {
			log.Error("an alert of an outage is lost: it was not delivered, and the store does not answer", "alert", alert)
		}
	}
}

// leave writes down what was not delivered, for other daemons or the next start.
func (o *outage) leave(ctx context.Context, w *Watcher) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for alert, list := range o.waiting {
		err := change(ctx, w.o.State, alert, func(r *record, now int64) error {
			if len(list) == 0 {
				return errStays
			}
			for _, m := range list {
				r.add(pending{Message: m.Message, Key: kindOutage + "|" + w.holder, Since: now, Tries: m.tries, To: m.rest}, now)
			}
			return nil
		})
		if err != nil {
			w.o.Log.Error("an alert of an outage is lost: it was not delivered, and the store does not answer", "alert", alert, "error", err)
		}
	}
}
