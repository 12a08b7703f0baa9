package outage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/must"
)

// A call that finds the breaker shut by another process, when it is about to say why the
// store is not asked, asks it.
func TestShutMeanwhile(t *testing.T) {
	s := New(memstore.New(nil), Options{Dir: t.TempDir(), Interval: time.Hour, Timeout: time.Minute, Log: slog.New(slog.DiscardHandler)})
	defer func() { _ = s.Close() }()
	s.breaker("up").open(errors.New("it is away"))
	must.Is(t, s.away("up"), driver.ErrUnavailable, "an open breaker")
	boot := s.breaker("up").boot
	shut := false
	s.breaker("up").boot = func() (string, int64, error) { // which a call asks for as it reads the breaker
		if shut {
			return "another boot", 1, nil
		}
		shut = true
		return boot()
	}
	asked, err := s.reach(t.Context(), "up", func(context.Context) error { return nil })
	if !asked || err != nil {
		t.Errorf("asked %v, %v", asked, err)
	}
}

// tardy is a context that ends a moment after its deadline.
type tardy struct {
	context.Context
	deadline time.Time
}

func (t tardy) Deadline() (time.Time, bool) { return t.deadline, true }

// A call that has less time than the store's timeout, and ends at its own deadline, does not
// count as an outage, also if the connection reports the deadline before the context does.
func TestADeadlineReportedFirst(t *testing.T) {
	for _, cause := range []error{context.DeadlineExceeded, driver.ErrUnavailable} { // the caller's own, and a flight's
		s := New(memstore.New(nil), Options{Dir: t.TempDir(), Interval: time.Hour, Timeout: time.Minute, Log: slog.New(slog.DiscardHandler)})
		ctx, end := context.WithCancelCause(t.Context())
		_, err := s.reach(tardy{ctx, time.Now()}, "up", func(context.Context) error {
			go end(cause)
			return fmt.Errorf("charge up: %w: %w", driver.ErrUnavailable, os.ErrDeadlineExceeded)
		})
		must.Is(t, err, driver.ErrUnavailable, "the call")
		must.Do(t, s.away("up"))
		must.Do(t, s.Close())
	}
}
