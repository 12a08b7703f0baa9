package alert

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget/config"
)

const (
	// sendTakes bounds one try to deliver a message.
	sendTakes = 10 * time.Second
	// claimHold is how long a daemon has a message: to send it, and to write down what became
	// of it.
	claimHold = 30 * time.Second
	// recordTakes bounds writing that down, once the daemon stops.
	recordTakes = 2 * time.Second
	// recordAgain is the wait before that is tried again.
	recordAgain = time.Second
	// atOnce is how many messages of an alert a daemon sends at once.
	atOnce = 4

	firstWait = 10 * time.Second // before the second try
	mostWait  = time.Hour        // between two tries
)

// waitAfter is how long to wait after this many failed tries, at most.
func waitAfter(tries int) time.Duration {
	wait := firstWait
	for range tries - 1 {
		if wait *= 2; wait >= mostWait {
			return mostWait
		}
	}
	return wait
}

// deliver sends the messages of an alert that are due, until none is.
func (w *Watcher) deliver(ctx context.Context, a config.Alert) {
	w.outage.deliver(ctx, w, a)
	for ctx.Err() == nil {
		list, err := w.claim(ctx, a.Name)
		if err != nil && ctx.Err() == nil {
			w.o.Log.Debug("an alert's messages could not be read; trying again", "alert", a.Name, "error", err)
		}
		if len(list) == 0 {
			return
		}
		var sending sync.WaitGroup
		for _, p := range list {
			sending.Go(func() { w.send(ctx, a, p) })
		}
		sending.Wait()
	}
}

// claim takes the messages that are due.
func (w *Watcher) claim(ctx context.Context, alert string) (list []pending, err error) {
	err = change(ctx, w.o.State, alert, func(r *record, now int64) error {
		if list = r.claim(w.holder, now, atOnce); len(list) == 0 {
			return errStays
		}
		return nil
	})
	if err != nil {
		return nil, err // if it was claimed all the same, the claim ends by itself
	}
	return list, nil
}

// send tries to deliver a claimed message, and writes down what became of it.
func (w *Watcher) send(ctx context.Context, a config.Alert, p pending) {
	log := w.o.Log.With("alert", a.Name, "kind", p.Kind, "phase", p.Phase, "budget", string(p.Budget), "job", string(p.Job), "id", p.ID)
	p.rest = p.To
	err := w.sender.deliver(ctx, a, p.Message)
	wait, said := time.Duration(0), ""
	var later *laterError
	var partly *partlyError
	switch errors.As(err, &partly); {
	case err == nil:
		log.Info("alert delivered")
	case partly != nil && partly.final:
		log.Error("an alert's mail was refused for some of its recipients; the others have got it", "error", err)
	case ctx.Err() != nil: // the daemon stops: others try at once
		said = "the daemon stopped while it was being sent"
	default:
		wait, said = jittered(waitAfter(p.Tries+1)), err.Error()
		if errors.As(err, &later) {
			wait = min(max(wait, later.after), mostWait)
		}
	}
	givenUp := w.conclude(ctx, a.Name, p.ID, said, wait, partly)
	switch {
	case said == "":
		w.o.Count(a.Name, Delivered)
		if err != nil {
			w.o.Count(a.Name, GivenUp)
		}
	case givenUp:
		w.o.Count(a.Name, GivenUp)
		log.Error("an alert could not be delivered for a day; it is given up", "error", said)
	default:
		w.o.Count(a.Name, Failed)
		log.Warn("an alert could not be delivered; trying again", "error", said, "wait", wait.Round(time.Second), "tries", p.Tries+1)
	}
}

// conclude writes down what became of a message, however long the store does not answer: until
// then another daemon may send the message again. Once the daemon stops, it has a moment left.
func (w *Watcher) conclude(ctx context.Context, alert, id, said string, wait time.Duration, partly *partlyError) (givenUp bool) {
	writing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(recordTakes, cancel) })()
	for {
		err := change(writing, w.o.State, alert, func(r *record, now int64) error {
			if partly != nil {
				r.part(id, partly, now)
			}
			var ok bool
			if givenUp, ok = r.conclude(id, w.holder, said, now, wait); !ok {
				return errStays
			}
			return nil
		})
		if err == nil {
			return givenUp
		}
		if writing.Err() != nil || !pause(writing, recordAgain) {
			w.o.Log.Warn("what became of an alert could not be written down; another daemon may send it again", "alert", alert, "id", id, "error", err)
			return false
		}
	}
}

// pause waits; false if ctx ends before.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
