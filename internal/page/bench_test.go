package page

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/look"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs"
)

// The first paint of each page, from a ledger of a million charges and a thousand jobs. Cold is
// a site that has read nothing, warm one that has.
func BenchmarkFirstPaint(b *testing.B) {
	const charges, many = 1_000_000, 1000
	dir := b.TempDir()
	store := must.Get(sqlitestore.Open(b.Context(), filepath.Join(dir, "quotactl.db"), sqlitestore.Options{}))(b)
	b.Cleanup(func() { must.Do(b, store.Close()) })
	var text strings.Builder
	text.WriteString("[upstream.up.costs]\nget = 1\nput = 2\n[upstream.up.limit.daily]\nlimit = 10_000_000\nwindow = \"24h\"\n[upstream.up.limit.puts]\nlimit = 9_000_000\nwindow = \"24h\"\noperations = [\"put\"]\n[upstream.up.credential.key]\n")
	for i := range many {
		fmt.Fprintf(&text, "[job.job-%d]\nbudget = \"up/key\"\nschedule = \"%d */2 * * *\"\nregions = [\"A\", \"B\"]\nneeds = { get = 10 }\ncommand = [\"true\"]\n", i, i%60)
	}
	path := filepath.Join(dir, "costs.toml")
	must.Do(b, os.WriteFile(path, []byte(text.String()), 0o600))
	cfg := must.Get(config.Parse(path))(b)
	list := jobs.Load(cfg)
	must.Do(b, cfg.Err())
	up := must.Get(open.BudgetOn(store, cfg, cfg.Store.URL, "up/key"))(b)
	began := time.Now()
	var workers sync.WaitGroup
	for worker := range 256 {
		workers.Go(func() {
			for i := worker; i < charges; i += 256 {
				if _, err := up.Charge(b.Context(), budget.Call{Operation: []string{"get", "put"}[i/256%2], Labels: budget.Labels{Job: fmt.Sprintf("job-%d", i%400), Region: "A"}}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	workers.Wait()
	for i := range many {
		var records []driver.JobRecord
		var last []byte
		for tick := range int64(12) {
			at := time.Now().Add(-time.Duration(tick) * 2 * time.Hour).UnixMicro()
			record := jobs.Record{Tick: jobs.InstantOf(at), Kind: jobs.Scheduled, Outcome: jobs.Succeeded, Started: jobs.InstantOf(at + 1e6), Ended: jobs.InstantOf(at + 5e6), Units: 20, Runs: []jobs.Run{
				{Region: "A", Outcome: jobs.Succeeded, Started: jobs.InstantOf(at + 1e6), Ended: jobs.InstantOf(at + 3e6), Units: 10, Log: []string{"fetched 10 pages", "done"}}, {Region: "B", Outcome: jobs.Succeeded, Started: jobs.InstantOf(at + 3e6), Ended: jobs.InstantOf(at + 5e6), Units: 10},
			}}
			made := must.Get(json.Marshal(record))(b)
			if tick == 0 {
				last = made
			}
			records = append(records, driver.JobRecord{At: at, ID: fmt.Sprint(tick), Text: made})
		}
		must.Get(store.SwapJob(b.Context(), driver.JobSwap{Job: fmt.Sprintf("job-%d", i), Text: must.Get(json.Marshal(map[string]any{"last": json.RawMessage(last)}))(b), Records: records}))(b)
	}
	b.Logf("filled in %s", time.Since(began))
	reader := &look.Reader{Config: cfg, Jobs: list, Store: store, URL: "sqlite:quotactl.db", Now: time.Now, Open: func(string) (*budget.Budget, error) { return up, nil }}
	reader.Log = discard
	for _, path := range []string{"/", "/budget?name=up/key", "/jobs", "/jobs?q=job-9&page=2", "/job?name=job-7", "/runs", "/runs?outcome=failed", "/runs?job=job-7", "/plan", "/why", "/why?budget=up/key&operation=get", "/alerts"} {
		paint := func(b *testing.B, s *Site) {
			answer := httptest.NewRecorder()
			s.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
			if answer.Code != http.StatusOK {
				b.Fatalf("%s: %d", path, answer.Code)
			}
			b.SetBytes(int64(answer.Body.Len()))
		}
		site := func() (*Site, func()) {
			s := New(Options{Reader: func() *look.Reader { return reader }, Now: time.Now})
			return s, s.shelf.end
		}
		b.Run("cold"+path, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				s, end := site()
				b.StartTimer()
				paint(b, s)
				b.StopTimer()
				end()
				b.StartTimer()
			}
		})
		b.Run("warm"+path, func(b *testing.B) {
			s, end := site()
			defer end()
			paint(b, s)
			for b.Loop() {
				paint(b, s)
			}
		})
	}
	b.Run("look", func(b *testing.B) {
		for b.Loop() {
			must.Get(reader.Mark(context.Background()))(b)
		}
	})
	b.Run("plan", func(b *testing.B) {
		for b.Loop() {
			must.Get(reader.Foresee(context.Background(), usual))(b)
		}
	})
}
