package outage

import (
	"context"
	"errors"
	"log/slog"
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
