package budgethttp_test

import (
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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
