package budgethttp_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// silent is a store that does not answer calls that finish a request until the test lets it.
type silent struct {
	driver.Store
	answer chan struct{} // closed when it is

	mu         sync.Mutex
	asks, most int
}

func (s *silent) await(ctx context.Context) error {
	s.mu.Lock()
	s.asks++
	s.most = max(s.most, s.asks)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.asks--
		s.mu.Unlock()
	}()
	select {
	case <-s.answer:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *silent) Finish(ctx context.Context, f driver.Finishes) ([]driver.Finished, error) {
	if err := s.await(ctx); err != nil {
		return nil, err
	}
	return s.Store.Finish(ctx, f)
}

func (s *silent) Change(ctx context.Context, change driver.Change) (driver.Changed, error) {
	if err := s.await(ctx); err != nil {
		return nil, err
	}
	return s.Store.Change(ctx, change)
}

// askSpec is a call that costs what its response says, which may be a refusal.
func askSpec(timeout time.Duration) budget.Spec {
	return budget.Spec{
		Name: "video/key1", Timeout: timeout, Limits: []limit.Limit{hourly(limit.MaxUnits)}, Costs: map[string]budget.Cost{"ask": usageCost},
		Feedback: feedback.Rules{Refusals: []feedback.Refusal{{
			Name: "spent", Means: feedback.Throttled, Condition: feedback.Condition{JSON: map[string][]string{"error": {"spent"}}}, Lock: time.Hour,
		}}},
	}
}

// asking is a client of a budget on a silent store.
type asking struct {
	budget *budget.Budget
	store  *silent
	client *http.Client
	seen   *observer
	log    bytes.Buffer
}

func newAsking(t *testing.T, timeout time.Duration, body string) *asking {
	t.Helper()
	a := &asking{store: &silent{Store: memstore.New(func() int64 { return time.Now().UnixMicro() }), answer: make(chan struct{})}, seen: &observer{}}
	var err error
	if a.budget, err = budget.New(a.store, askSpec(timeout), budget.WithClosers(a.store)); err != nil {
		t.Fatal(err)
	}
	base := roundTrip(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{"X-Cost": {"9"}}, Body: io.NopCloser(strings.NewReader(body)), Request: req, ContentLength: -1}, nil
	})
	a.client = &http.Client{Transport: meter(t, a.budget, budgethttp.Options{Base: base, Operation: "ask", Observer: a.seen, Log: slog.New(slog.NewTextHandler(&a.log, nil))})}
	return a
}

// A body is closed at once, though the store does not answer. The verdict of its response is
// recorded when the store does, for which Flush and VerdictOf wait.
func TestCloseDoesNotWaitForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const text = `{"usage":{"total":7},"error":"spent"}`
		a := newAsking(t, time.Hour, text)
		resp, err := a.client.Get("http://upstream") //nolint:bodyclose // it is closed below
		must.Do(t, err)
		must.Get(io.ReadFull(resp.Body, make([]byte, len(text))))(t)
		start := time.Now()
		if err := resp.Body.Close(); err != nil || time.Since(start) != 0 {
			t.Fatalf("closed after %s: %v", time.Since(start), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := a.budget.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Minute {
			t.Errorf("flushed after %s: %v", time.Since(start), err)
		}
		told := make(chan bool)
		go func() {
			verdict, ok := budgethttp.VerdictOf(resp)
			told <- ok && verdict.Rule == "spent" && verdict.Until.After(start)
		}()
		synctest.Wait()
		select {
		case <-told:
			t.Error("VerdictOf returned before the upstream's verdict was known")
		default:
		}
		close(a.store.answer)
		if !<-told {
			t.Error("VerdictOf has no verdict")
		}
		want(t, a.budget, 7, 1, 0)
		a.seen.check(t)
		if _, err := a.client.Get("http://upstream"); !errors.Is(err, budget.ErrLocked) { //nolint:bodyclose // there is none
			t.Errorf("the next request: %v", err)
		}
	})
}

// Close ends a Read that waits until the store hears of the body's end: it does not wait
// itself.
func TestCloseDoesNotWaitForARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsking(t, time.Hour, `{"usage":{"total":7}}`)
		resp, err := a.client.Get("http://upstream") //nolint:bodyclose // it is closed below
		must.Do(t, err)
		read := make(chan error)
		go func() {
			_, err := io.ReadAll(resp.Body)
			read <- err
		}()
		synctest.Wait()
		start := time.Now()
		if err := resp.Body.Close(); err != nil || time.Since(start) != 0 {
			t.Errorf("closed after %s: %v", time.Since(start), err)
		}
		close(a.store.answer)
		check.NoError(t, <-read)
		want(t, a.budget, 7, 1, 0)
		a.seen.check(t)
	})
}

// A program that closes its budget at its end has recorded what its requests cost, where
// the store answers in time; else it waits for no longer than twice the store's timeout.
func TestBudgetCloseWaitsForWhatIsLeft(t *testing.T) {
	for name, after := range map[string]time.Duration{"an answer in time": 900 * time.Millisecond, "an answer too late": time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			a := newAsking(t, time.Second, `{"usage":{"total":7}}`)
			const bodies = 64 // more than are recorded at a time
			for range bodies {
				resp := fetch(t, a.client, "http://upstream")
				must.Do(t, resp.Body.Close())
			}
			answer := time.AfterFunc(after, func() { close(a.store.answer) })
			defer answer.Stop()
			start := time.Now()
			err := a.budget.Close()
			took, units := time.Since(start), a.seen.check(t)
			if after < time.Second && (err != nil || took != after || units != 9*bodies) {
				t.Errorf("%s: closed after %s: %v; %d units", name, took, err, units)
			}
			if after > time.Second && (!errors.Is(err, budget.ErrUnavailable) || took > 2*time.Second || strings.Count(a.log.String(), "could not be settled") != bodies) {
				t.Errorf("%s: closed after %s: %v; log:\n%s", name, took, err, a.log.String())
			}
			time.Sleep(time.Second) // what was sent to the store ends with its timeout
		})
	}
}

// However many bodies are closed while the store does not answer: one asks it, the others wait to be
// settled together, and another one settles what is too much, at what was charged.
func TestManyClosedBodies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const kept, more, atATime = 4096, 100, 2
		a := newAsking(t, time.Hour, `{"usage":{"total":7}}`)
		for range kept + more {
			resp := fetch(t, a.client, "http://upstream")
			must.Do(t, resp.Body.Close())
		}
		synctest.Wait()
		close(a.store.answer)
		want(t, a.budget, 9*kept+50*more, kept+more, 0)
		check.Equal(t, a.store.most <= atATime, true, "goroutines asked the store at a time", a.store.most)
		check.Equal(t, strings.Count(a.log.String(), "too many responses wait for the store"), more, "log lines of what was too much")
		a.seen.check(t)
	})
}
