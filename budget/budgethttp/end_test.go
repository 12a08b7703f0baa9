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
	"github.com/quotactl/quotactl/internal/must"
)

// A body that is read to its end waits for the store's timeout at most, however many do.
func TestManyReadsToTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsking(t, time.Second, `{"usage":{"total":7}}`)
		start := time.Now()
		var all sync.WaitGroup
		for range 320 {
			all.Go(func() {
				resp, err := a.client.Get("http://upstream")
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if took := time.Since(start); took > time.Second {
					t.Errorf("took %s", took)
				}
			})
		}
		all.Wait()
		close(a.store.answer)
		must.Do(t, a.budget.Flush(t.Context()))
	})
}

// finishingStore takes a while to finish reservations.
type finishingStore struct{ driver.Store }

func (s finishingStore) Finish(ctx context.Context, f driver.Finishes) ([]driver.Finished, error) {
	time.Sleep(900 * time.Millisecond)
	return s.Store.Finish(ctx, f)
}

// Settlements that come together wait for each other, however long, as long as the store answers.
func TestManySettlements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := finishingStore{memstore.New(func() int64 { return time.Now().UnixMicro() })}
		b := must.Get(budget.New(store, budget.Spec{
			Name: "video/key1", Timeout: time.Second, Unknown: budget.Unknown{Allowed: true, Units: 1},
			Limits: []limit.Limit{{Name: "open", Limit: 1000, Counts: limit.CountCalls, Window: limit.ConcurrentWindow()}}, // nothing is settled silently
		}))(t)
		client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: answers(200, nil, strings.NewReader(""))})}
		const n = 4 * driver.MaxBatch
		var all sync.WaitGroup
		for range n {
			all.Go(func() {
				resp, err := client.Get("http://upstream")
				if err != nil {
					t.Error(err)
					return
				}
				_ = resp.Body.Close()
			})
		}
		all.Wait()
		want(t, b, n, n, 0)
	})
}
