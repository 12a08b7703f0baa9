package look

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs"
)

// readerOf reads a store in memory whose clock is at *now.
func readerOf(t *testing.T, now *time.Time) *Reader {
	path := filepath.Join(t.TempDir(), "costs.toml")
	must.Do(t, os.WriteFile(path, []byte(`
[upstream.up.costs]
get = 10
list = 1
[upstream.up.limit.daily]
limit = 100
window = "24h"
[upstream.up.credential.key]
[job.nightly]
budget = "up/key"
schedule = "0 2 * * *"
needs = { get = 8 }
command = ["true"]
[job.unknown]
budget = "up/key"
schedule = "0 3 * * *"
command = ["true"]
[alert.team]
url_env = "HOOK"
on = ["exhausted"]
`), 0o600))
	cfg := must.Get(config.Parse(path))(t)
	list := jobs.Load(cfg)
	must.Do(t, cfg.Err())
	store := memstore.New(func() int64 { return now.UnixMicro() })
	clock := func() time.Time { return *now }
	return &Reader{Config: cfg, Jobs: list, Store: store, Now: clock, Log: slog.New(slog.DiscardHandler), Open: func(name string) (*budget.Budget, error) {
		return open.BudgetOn(store, cfg, cfg.Store.URL, name, budget.WithNow(clock))
	}}
}

func charge(t *testing.T, r *Reader, operation, job string) {
	t.Helper()
	b := must.Get(r.Open("up/key"))(t)
	must.Get(b.Charge(t.Context(), budget.Call{Operation: operation, Labels: budget.Labels{Job: job}}))(t)
}

// What was charged is told apart by hour and operation, and of the other span by who was charged.
func TestSpending(t *testing.T) {
	now := time.Date(2026, 11, 27, 9, 30, 0, 0, time.UTC)
	r := readerOf(t, &now)
	charge(t, r, "list", "nightly")
	now = now.Add(5 * time.Hour)
	charge(t, r, "get", "nightly")
	charge(t, r, "list", "")
	charge(t, r, "list", "")
	got := must.Get(r.Spending(t.Context(), "up/key", 24*time.Hour, 2*time.Hour))(t)
	check.Equal(t, len(got.Hours), 3, "hours and operations")
	units := map[string]int64{}
	for _, h := range got.Hours {
		units[h.Begin.Format("15:04 ")+h.Operation] = h.Units
	}
	for name, want := range map[string]int64{"09:00 list": 1, "14:00 get": 10, "14:00 list": 2} {
		check.Equal(t, units[name], want, name)
	}
	check.EqualSlices(t, got.Jobs, []Spender{{Name: "nightly", Units: 10, Calls: 1}, {Units: 2, Calls: 2}})
	check.EqualSlices(t, got.Operations, []Spender{{Name: "get", Units: 10, Calls: 1}, {Name: "list", Units: 2, Calls: 2}})
	check.Equal(t, got.WhoSince, time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC))
}

// A mark changes with what is shown, and with nothing else.
func TestMark(t *testing.T) {
	now := time.Date(2026, 11, 27, 9, 30, 0, 0, time.UTC)
	r := readerOf(t, &now)
	mark := func() uint64 { return must.Get(r.Mark(t.Context()))(t) }
	first := mark()
	now = now.Add(time.Minute)
	check.Equal(t, mark(), first, "later")
	swap := func(name, text string) {
		must.Get(r.Store.SwapJob(t.Context(), driver.JobSwap{Job: name, Text: []byte(text)}))(t)
	}
	seen := map[uint64]string{first: "nothing"}
	for _, change := range []struct {
		what string
		do   func()
	}{
		{"a charge", func() { charge(t, r, "get", "nightly") }},
		{"a lock", func() {
			b := must.Get(r.Open("up/key"))(t)
			must.Get(b.Lock(t.Context(), budget.LockOrder{Until: budget.Until{After: time.Hour}, Why: "why", ByHand: true}))(t)
		}},
		{"a job", func() { swap("nightly", `{}`) }},
		{"an alert", func() { swap("@alerts/team", `{"messages":[{"id":"1"}]}`) }},
		{"time, as charges return", func() { now = now.Add(25 * time.Hour) }},
	} {
		change.do()
		got := mark()
		check.Equal(t, seen[got], "", change.what, "is seen as")
		seen[got] = change.what
	}
}

// A plan is given in all its forms at once.
func TestForesee(t *testing.T) {
	now := time.Date(2026, 11, 27, 9, 30, 0, 0, time.UTC)
	r := readerOf(t, &now)
	charge(t, r, "get", "")
	charge(t, r, "get", "")
	charge(t, r, "get", "")
	got := must.Get(r.Foresee(t.Context(), 24*time.Hour))(t)
	check.Equal(t, got.Until, now.Add(24*time.Hour))
	check.Equal(t, got.Plan.Short(), true, "80 units do not fit into 70")
	check.Equal(t, got.Forecast.Job("nightly").Complete, 0)
	check.Equal(t, len(got.Passes["nightly"]), 1)
	check.Equal(t, got.Unknown["unknown"] && !got.Unknown["nightly"], true, "whose needs are not known")
	passes := must.Get(r.Passes(t.Context(), "nightly", time.Time{}, 5))(t)
	check.Equal(t, len(passes), 0)
}
