package storetest

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/must"
)

// MonthRows is how many rows of history FillMonth makes: 40 series in each hour.
const MonthRows = 30 * 24 * 40

// FillMonth charges 40 series in each hour of 30 days, and on the last of
// them n more units, of one each. The clock is the store's.
func FillMonth(b testing.TB, store driver.Store, clock *atomic.Int64, n int) {
	spec := BenchSpec(0)
	id := 0
	charge := func(units, series int) {
		batch := driver.Batch{Budget: spec.Name, Now: clock.Load(), Limits: spec.Limits}
		for range units {
			id++
			batch.Items = append(batch.Items, driver.Item{
				ID: fmt.Sprint("fill", id), Operation: "op", Units: 1,
				Labels: driver.Labels{Job: benchJobs[series%len(benchJobs)], Region: fmt.Sprint("r", series/len(benchJobs)%8)},
			})
			series++
		}
		must.Get(store.Decide(b.Context(), batch))(b)
	}
	hours := 30 * 24
	for hour := range hours {
		clock.Add(time.Hour.Microseconds())
		charge(40, 0)
		for left := n / 24; hour >= hours-24 && left > 0; left -= driver.MaxBatch {
			charge(min(left, driver.MaxBatch), left)
		}
	}
}

// BenchPast times budget.History by the day over 30 days beside n charges, and reports the
// slowest in ms. Beside it, it reports the slowest of budget.Rated and of budget.Status.
func BenchPast(b *testing.B, store driver.Store, clock *atomic.Int64, n int) {
	FillMonth(b, store, clock, n)
	opened := must.Get(budget.New(store, BenchSpec(0), budget.WithNow(func() time.Time { return time.UnixMicro(clock.Load()) })))(b)
	var slowest, rated, status time.Duration
	for b.Loop() {
		began := time.Now()
		past := must.Get(opened.History(b.Context(), budget.ByDay, 30*24*time.Hour, time.UTC))(b)
		slowest = max(slowest, time.Since(began))
		must.Equal(b, len(past.Rows) >= 30, true, "days:", len(past.Rows))
		began = time.Now()
		limits := must.Get(opened.Rated(b.Context()))(b).Limits
		rated = max(rated, time.Since(began))
		must.Equal(b, limits[0].Rate != nil, true, "has a rate")
		began = time.Now()
		must.Get(opened.Status(b.Context()))(b)
		status = max(status, time.Since(began))
	}
	b.ReportMetric(float64(n), "charges")
	b.ReportMetric(float64(slowest.Microseconds())/1000, "slowest-ms")
	b.ReportMetric(float64(rated.Microseconds())/1000, "rated-ms")
	b.ReportMetric(float64(status.Microseconds())/1000, "status-ms")
}
