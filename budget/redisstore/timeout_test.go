package redisstore

import (
	"context"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// A call takes as long as the store's timeout, before the first answer eight times that, or another that it is given, and never longer than its
// caller allows.
func TestWithTimeout(t *testing.T) {
	s := must.Get(Open(t.Context(), "redis://127.0.0.1:1", Options{Timeout: time.Minute}))(t)
	left := func(ctx context.Context) time.Duration {
		ctx, cancel, err := s.begin(ctx)
		must.Do(t, err)
		defer cancel()
		end, _ := ctx.Deadline()
		return time.Until(end).Round(time.Minute)
	}
	bounded, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	check.Equal(t, left(t.Context()), 8*time.Minute, "before the first answer")
	s.pace.answered(0)
	check.Equal(t, left(t.Context()), time.Minute, "its own")
	check.Equal(t, left(bounded), time.Minute, "its own, within the caller's")
	check.Equal(t, left(s.WithTimeout(t.Context(), 4*time.Minute)), 4*time.Minute, "another")
	check.Equal(t, left(s.WithTimeout(bounded, time.Hour)), 10*time.Minute, "the caller's")
	check.NoError(t, s.Close())
}
