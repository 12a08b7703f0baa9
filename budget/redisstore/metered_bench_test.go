package redisstore_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
	"github.com/quotactl/quotactl/internal/storetest"
)

// BenchmarkMetered compares requests of a metered client with those of a bare one, turn by
// turn, over kept connections to a server in this process that answers at once. ratio is the
// rate of the metered ones divided by that of the bare ones; the processor time is that of
// this process, with client and server.
func BenchmarkMetered(b *testing.B) {
	open := map[string]func(b *testing.B) driver.Store{
		"Redis": func(b *testing.B) driver.Store {
			return must.Get(redisstore.Open(b.Context(), redistest.Start(b).URL(0), redisstore.Options{Timeout: time.Minute}))(b)
		},
		"SQLite": func(b *testing.B) driver.Store {
			return must.Get(sqlitestore.Open(b.Context(), filepath.Join(b.TempDir(), "q.db"), sqlitestore.Options{Timeout: time.Minute}))(b)
		},
	}
	for _, kind := range []string{"Redis", "SQLite"} {
		for _, goroutines := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("%s/goroutines=%d", kind, goroutines), func(b *testing.B) { benchMetered(b, open[kind](b), goroutines) })
		}
	}
}

func benchMetered(b *testing.B, store driver.Store, goroutines int) {
	opened := must.Get(budget.New(store, budget.Spec{
		Name: "shop/main", Costs: map[string]budget.Cost{"get": {Units: 1}}, Timeout: time.Minute,
		Limits: []limit.Limit{{Name: "hourly", Limit: limit.MaxUnits, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)}},
	}, budget.WithClosers(store)))(b)
	b.Cleanup(func() { must.Do(b, opened.Close()) })
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"items":[]}`) }))
	b.Cleanup(server.Close)
	base := &http.Transport{MaxIdleConnsPerHost: goroutines}
	b.Cleanup(base.CloseIdleConnections)
	metered := must.Get(budgethttp.New(opened, budgethttp.Options{Base: base, Operation: "get"}))(b)
	storetest.Metered(b, goroutines, storetest.Get(&http.Client{Transport: metered}, server.URL), storetest.Get(&http.Client{Transport: base}, server.URL))
}
