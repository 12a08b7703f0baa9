package budget_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// retry makes a call by itself, and again when its line says so.
func (c *crowd) retry(ctx context.Context, call budget.Call) {
	b := c.process()
	time.Sleep(time.Microsecond)
	go func() {
		line := b.Line()
		defer line.Leave(false)
		for {
			receipt, err := b.Charge(ctx, call)
			var refused *budget.RefusedError
			if err == nil {
				c.served <- receipt
				return
			} else if !errors.As(err, &refused) {
				c.failed <- err
				return
			}
			if err = line.Wait(ctx, refused, refused.RetryAfter); err != nil {
				c.failed <- err
				return
			}
		}
	}()
	synctest.Wait()
}

// One that makes its call by itself is in the line of those that wait, of its own process and of
// others: it goes at its instant, before those that came later and after those that came earlier.
func TestLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		c.spend(5)
		time.Sleep(5 * time.Second)
		c.spend(5)
		c.wait(t.Context(), of(5, "get", "first"))
		c.retry(t.Context(), of(5, "get", "large")) // at ten and fifteen
		c.wait(t.Context(), of(1, "get", "small"))
		c.retry(t.Context(), of(1, "get", "smaller"))
		time.Sleep(time.Until(c.began.Add(10*time.Second + 50*time.Millisecond)))
		check.EqualSlices(t, c.order(), []string{"first"}, "served at ten")
		time.Sleep(time.Until(c.began.Add(15*time.Second - time.Microsecond)))
		check.Equal(t, len(c.order()), 0, "served before fifteen")
		time.Sleep(50 * time.Millisecond)
		check.EqualSlices(t, c.order(), []string{"large"}, "served at fifteen")
		time.Sleep(10 * time.Second)
		check.EqualSlices(t, c.order(), []string{"small", "smaller"}, "the order behind it")
		check.Equal(t, len(c.files()), 0, "files that are left")
	})
}

// The context ends the wait, and a deadline before those ahead can be served at once.
func TestLineEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		c.spend(10)
		c.wait(t.Context(), of(10, "get", "ahead"))
		b := c.process()
		time.Sleep(time.Microsecond)
		_, err := b.Charge(t.Context(), of(1, "get", ""))
		var refused *budget.RefusedError
		must.Equal(t, errors.As(err, &refused), true, err)
		began := time.Now()
		for name, span := range map[string]time.Duration{"too short": 5 * time.Second, "long": time.Minute} {
			ctx, cancel := context.WithTimeout(t.Context(), span)
			if name == "long" {
				time.AfterFunc(time.Second, cancel)
			}
			err := b.Line().Wait(ctx, refused, refused.RetryAfter)
			cancel()
			must.Equal(t, err != nil, true, name)
		}
		check.Equal(t, time.Since(began), time.Second, "the one that was ended waited")
		check.Equal(t, len(c.files()), 1, "files, of the one ahead")
	})
}
