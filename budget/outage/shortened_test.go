package outage

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/must"
)

// A record whose window was shortened meanwhile is recorded while the new one counts
// it, and set aside with the reason once that does not. A settlement that comes after
// goes to the store: it finds nothing to wait for.
func TestWindowsThatWereShortened(t *testing.T) {
	t.Parallel()
	const hour = 3_600_000_000
	hours := func(n int, name string, operations ...string) limit.Limit {
		l := dayOf(name, operations...)
		l.Window = limit.RollingWindow(time.Duration(n) * time.Hour)
		return l
	}
	for name, c := range map[string]struct {
		ask      func(t *testing.T, s *Store)
		age      int64
		recorded bool
		aside    string
		left     bool
	}{
		"a charge of it, while it counts": {ask: asks("list", hours(3, "short")), age: 2 * hour, recorded: true},
		"a charge of it, past that": {
			ask: asks("list", hours(2, "short")), age: 2 * hour,
			aside: "it is 2h0m0s old, and no limit counts operation list for that long any more: when it was spent the longest window was 24h0m0s, now it is 2h0m0s",
		},
		"a look, past that":               {ask: looks(hours(1, "short")), age: 2 * hour, aside: "now it is 1h0m0s"},
		"a look, its operation is gone":   {ask: looks(hours(1, "searches", "search")), age: 2 * hour, aside: "now it is 0s"},
		"a look at limits of another":     {ask: looks(hours(1, "short"), hours(24, "each:search", "search")), age: 2 * hour, left: true},
		"a look at its own":               {ask: looks(hours(1, "short"), hours(1, "each:list", "list")), age: 2 * hour, aside: "now it is 1h0m0s"},
		"a look at none":                  {ask: looks(), age: 2 * hour, left: true},
		"a charge of another operation":   {ask: asks("search", hours(1, "short")), age: 2 * hour, left: true},
		"another, past the old window":    {ask: asks("search", hours(1, "short")), age: 24 * hour},
		"another, when it is hardly over": {ask: asks("search", hours(1, "short")), age: hour / 3, recorded: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, Options{})
			log := &bytes.Buffer{}
			h.options.Log = slog.New(slog.NewTextHandler(log, nil))
			s := New(h.store, h.options)
			defer func() { _ = s.Close() }()
			s.boot = func() (string, int64, error) { return "boot", hour + c.age, nil }
			record := &record{Budget: up, ID: "x", Boot: "boot", At: hour, Charge: &chargeRecord{Operation: "list", Units: 77, Held: dayOf("day").Longest()}}
			must.Do(t, s.journal.write(record))
			c.ask(t, s)
			if left := s.journal.pending(up); left != c.left {
				t.Fatalf("it is left in the journal: %v, want %v", left, c.left)
			}
			view := must.Get(h.store.Look(t.Context(), driver.Look{Budget: up, Now: wallClock(), Limits: []limit.Limit{dayOf("day", "list")}}))(t)
			must.Equal(t, view.Limits[0].Used >= 77, c.recorded)
			why, _ := os.ReadFile(filepath.Join(s.o.Dir, asideFolder, fileName(up), record.name()+".why"))
			if (c.aside != "") != (len(why) > 0) || !strings.Contains(string(why), c.aside) {
				t.Fatalf("it is set aside because %q, want %q", why, c.aside)
			}
			if aside := strings.Contains(log.String(), "is set aside"); aside != (c.aside != "") {
				t.Fatalf("the log says\n%s", log)
			}
			// The settlement is asked of the store, which knows no such reservation, or waits.
			f, err := driver.FinishOne(t.Context(), s, up, wallClock(), driver.Finish{ID: "unknown", Units: 1})
			files, _ := filepath.Glob(filepath.Join(s.journal.folder(up), "*"))
			if want := map[bool]driver.FinishResult{false: driver.FinishExpired, true: driver.Settled}[c.left]; err != nil || f.Result != want || len(files) > 0 != c.left {
				t.Fatalf("a settlement: %+v, %v, with %v in the journal", f, err, files)
			}
		})
	}
}

// asks is a charge of an operation with these limits.
func asks(operation string, limits ...limit.Limit) func(*testing.T, *Store) {
	return func(t *testing.T, s *Store) {
		t.Helper()
		batch := driver.Batch{Budget: up, Now: wallClock(), Limits: limits, Items: []driver.Item{{ID: "asked", Operation: operation, Units: 1}}}
		must.Equal(t, must.Get(s.Decide(t.Context(), batch))(t).Items[0].Result, driver.Granted)
	}
}

func looks(limits ...limit.Limit) func(*testing.T, *Store) {
	return func(t *testing.T, s *Store) {
		t.Helper()
		must.Get(s.Look(t.Context(), driver.Look{Budget: up, Now: wallClock(), Limits: limits}))(t)
	}
}
