package budgethttp_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/internal/must"
)

// refusing is a client whose budget has nothing left for a window. It counts what was
// refused.
type refusing struct {
	t       *testing.T
	client  *http.Client
	refused int
}

func newRefusing(t *testing.T, window time.Duration, how budgethttp.Refused) *refusing {
	b := open(t, fullSpec(window))
	spend(t, b)
	base := roundTrip(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: req}, nil
	})
	return &refusing{t: t, client: &http.Client{Transport: meter(t, b, budgethttp.Options{Base: base, Operation: "read", Refused: how})}}
}

// ask makes a request, and reports whether it was sent.
func (r *refusing) ask(ctx context.Context) bool {
	req := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, "http://upstream", nil))(r.t)
	resp, err := r.client.Do(req)
	if err != nil && !errors.Is(err, budget.ErrExhausted) {
		r.t.Fatal(err)
	}
	if err == nil {
		_ = resp.Body.Close()
	}
	if err == nil && resp.StatusCode == http.StatusOK {
		return true
	}
	r.refused++
	return false
}

// A client that ignores refusals, whether as status or as error, is not refused
// thousands of times, and is let through at the instant at which the call fits.
func TestRefusalsAreHeldBack(t *testing.T) {
	for _, how := range []budgethttp.Refused{budgethttp.Answer429, budgethttp.Fail} {
		synctest.Test(t, func(t *testing.T) {
			r, start := newRefusing(t, 8*time.Second, how), time.Now()
			for !r.ask(t.Context()) {
				if r.refused > 1000 {
					t.Fatalf("refused %d times after %s", r.refused, time.Since(start))
				}
				if r.refused == 20 && time.Since(start) != 0 {
					t.Errorf("the first refusals took %s", time.Since(start))
				}
			}
			if took := time.Since(start).Truncate(time.Microsecond); took != 8*time.Second || r.refused > 100 || r.refused < 21 {
				t.Errorf("let through after %s and %d refusals", took, r.refused)
			}
		})
	}
}

// Many who are refused once each at the same time hardly notice, nor does one that
// asks once a second, for however long.
func TestFewRefusalsAreNotHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, start := newRefusing(t, time.Hour, budgethttp.Fail), time.Now()
		var all sync.WaitGroup
		for range 500 {
			all.Go(func() {
				if _, err := r.client.Get("http://upstream"); !errors.Is(err, budget.ErrExhausted) { //nolint:bodyclose // there is none
					t.Error(err)
				}
			})
		}
		all.Wait()
		if took := time.Since(start); took > 10*time.Millisecond {
			t.Errorf("refusing 500 at once took %s", took)
		}
		time.Sleep(10 * time.Second)
		for range 100 {
			at := time.Now()
			if r.ask(t.Context()); time.Since(at) != 0 {
				t.Fatalf("one that asks once a second was held for %s", time.Since(at))
			}
			time.Sleep(time.Second)
		}
	})
}

// A refusal that is held goes out when the request's context ends, leaves time to its
// deadline, and tells how long to wait from then on.
func TestHeldRefusalsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, start := newRefusing(t, time.Minute, budgethttp.Fail), time.Now()
		for time.Since(start) < 5*time.Second {
			r.ask(t.Context())
		}
		held := func(ctx context.Context, want time.Duration) {
			t.Helper()
			at := time.Now()
			req := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, "http://upstream", nil))(t)
			_, err := r.client.Do(req) //nolint:bodyclose // there is none
			var refused *budget.RefusedError
			if took := time.Since(at); !errors.As(err, &refused) || took != want || (refused.RetryAfter-refused.RetryAt.Sub(at.Add(took))).Abs() > time.Microsecond {
				t.Errorf("held for %s, want %s: %v", took, want, err)
			}
		}
		var all sync.WaitGroup
		defer all.Wait()
		many := func() { // so that the next is held
			for range 30 {
				all.Go(func() {
					_, _ = r.client.Get("http://upstream") //nolint:bodyclose // there is none
				})
			}
			synctest.Wait()
		}
		many()
		held(t.Context(), time.Second)
		many()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(300*time.Millisecond, cancel)
		held(ctx, 300*time.Millisecond)
		many()
		ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		held(ctx, 150*time.Millisecond)
	})
}
