package budgethttp_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// stepping counts the steps of a store.
type stepping struct {
	driver.Store
	mu                sync.Mutex
	decided, finished int
}

func (s *stepping) Decide(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
	s.mu.Lock()
	s.decided++
	s.mu.Unlock()
	return s.Store.Decide(ctx, b)
}

func (s *stepping) Finish(ctx context.Context, f driver.Finishes) ([]driver.Finished, error) {
	s.mu.Lock()
	s.finished++
	s.mu.Unlock()
	return s.Store.Finish(ctx, f)
}

// A response that costs what was charged, and says nothing else, takes no step of the store beside
// the next charge. One that says more is recorded before the next request, and so is any that a
// limit on open reservations counts.
func TestWhichResponsesAreSettledSoon(t *testing.T) {
	open := limit.Limit{Name: "open", Limit: 1, Counts: limit.CountCalls, Window: limit.ConcurrentWindow()}
	for name, c := range map[string]struct {
		cost     budget.Cost
		limits   []limit.Limit
		header   string // X-Cost of each response
		body     string
		finishes int // of the store, by themselves, before Flush
	}{
		"a known cost":                 {cost: budget.Cost{Units: 3}, body: "ok"},
		"a known cost, no body":        {cost: budget.Cost{Units: 3}},
		"a stated cost, the same":      {cost: usageCost, header: "50"},
		"a cost in the body, the same": {cost: usageCost, body: `{"usage":{"total":50}}`},
		"a stated cost, another":       {cost: usageCost, header: "9", finishes: 4},
		"a cost in the body, another":  {cost: usageCost, body: `{"usage":{"total":7}}`, finishes: 4},
		"open reservations":            {cost: budget.Cost{Units: 3}, limits: []limit.Limit{open}, body: "ok", finishes: 4},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &stepping{Store: memstore.New(func() int64 { return time.Now().UnixMicro() })}
			b := must.Get(budget.New(store, budget.Spec{
				Name: "video/key1", Limits: append(c.limits, hourly(1000)), Costs: map[string]budget.Cost{"ask": c.cost},
			}))(t)
			base := roundTrip(func(req *http.Request) (*http.Response, error) {
				resp := &http.Response{StatusCode: http.StatusOK, ProtoMajor: 1, Header: http.Header{}, Body: http.NoBody, Request: req}
				if c.header != "" {
					resp.Header.Set("X-Cost", c.header)
				}
				if c.body != "" {
					resp.ContentLength = int64(len(c.body))
					resp.Body = io.NopCloser(strings.NewReader(c.body))
				}
				return resp, nil
			})
			seen := &observer{}
			client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: base, Operation: "ask", Observer: seen})}
			for range 4 {
				resp := fetch(t, client, "http://upstream")
				readAll(t, resp, c.body)
				_ = resp.Body.Close()
			}
			check.Equal(t, store.decided, 4, name, "decisions")
			check.Equal(t, store.finished, c.finishes, name, "finishes by themselves")
			want(t, b, seen.check(t), 4, 0)
			check.Equal(t, store.finished, max(1, c.finishes), name, "finishes by themselves, with Flush")
		})
	}
}
