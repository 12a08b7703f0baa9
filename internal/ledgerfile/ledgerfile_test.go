package ledgerfile_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/ledgerfile"
	"github.com/quotactl/quotactl/internal/must"
)

const budget = "up/key1"

// limits are the test's: 1,000,000 units an hour.
var limits = []limit.Limit{{Name: "w", Limit: 1_000_000, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)}}

// fill charges so many calls, of which the first is a reservation.
func fill(t testing.TB, store driver.Store, calls int) {
	t.Helper()
	for n := range calls {
		item := driver.Item{ID: fmt.Sprint("id-", n), Operation: "op", Units: int64(n), Labels: driver.Labels{Job: "j", Region: "US", Run: "j/1:US"}}
		if n == 0 {
			item.Lease = 60_000_000
		}
		batch := driver.Batch{Budget: budget, Now: time.Now().UnixMicro(), Limits: limits, Items: []driver.Item{item}}
		must.Equal(t, must.Get(store.Decide(t.Context(), batch))(t).Items[0].Result, driver.Granted)
	}
}

// export is the file of a store.
func export(t testing.TB, store driver.Store) []byte {
	t.Helper()
	var file bytes.Buffer
	must.Get(ledgerfile.Export(t.Context(), store, budget, time.Now(), &file))(t)
	return file.Bytes()
}

// lastLine is the last line of a file, which says how many rows it has.
func lastLine(file []byte) string {
	lines := strings.Split(strings.TrimSpace(string(file)), "\n")
	return lines[len(lines)-1]
}

func used(t testing.TB, store driver.Store) int64 {
	t.Helper()
	return must.Get(store.Look(t.Context(), driver.Look{Budget: budget, Now: time.Now().UnixMicro(), Limits: limits}))(t).Limits[0].Used
}

// A file holds all that is exported, and a second import of it adds nothing.
func TestExportAndImport(t *testing.T) {
	from, to := memstore.New(nil), memstore.New(nil)
	fill(t, from, 3)
	must.Get(driver.Apply(t.Context(), from, driver.Lock{Budget: budget, Now: time.Now().UnixMicro(), After: 60_000_000, Most: driver.MaxLock, Why: `it said "403" <no>`}))(t)
	file := export(t, from)
	for round, want := range []ledgerfile.Result{{Added: 3}, {Before: 3}} {
		got := must.Get(ledgerfile.Import(t.Context(), to, bytes.NewReader(file), limits, time.Now))(t)
		want.Facts = must.Get(ledgerfile.Check(bytes.NewReader(file)))(t)
		must.Equal(t, fmt.Sprint(got), fmt.Sprint(want), "round", round)
		check.Equal(t, got.Rows, 3)
		check.Equal(t, got.History > 0, true, "rows of history")
	}
	again := export(t, to)
	_, rows, _ := bytes.Cut(file, []byte("\n"))
	_, rowsAgain, _ := bytes.Cut(again, []byte("\n"))
	check.Equal(t, string(rowsAgain), string(rows), "the rows of the copy")
	check.Contains(t, string(again), `"reason":"it said \"403\" <no>"`)
}

// failing is a store that fails now and then, before or after the import.
type failing struct {
	driver.Store
	calls int
	fail  func(call int) (before, after error)
}

func (f *failing) Change(ctx context.Context, change driver.Change) (driver.Changed, error) {
	f.calls++
	before, after := f.fail(f.calls)
	if before != nil {
		return nil, before
	}
	changed, err := f.Store.Change(ctx, change)
	return changed, errors.Join(err, after)
}

// An import tries again where the store is out of reach, whether or not it had taken the
// rows in; where it was ended, it is resumed.
func TestImportResumes(t *testing.T) {
	const calls = 3*driver.MaxImport + 7
	from, to := memstore.New(nil), memstore.New(nil)
	fill(t, from, 1)
	var text strings.Builder
	whole := export(t, from)
	head, _, _ := strings.Cut(string(whole), "\n")
	fmt.Fprintln(&text, head)
	at := time.Now().UTC().Format(time.RFC3339Nano)
	for n := range calls {
		fmt.Fprintf(&text, `{"id":"c-%d","operation":"op","units":1,"at":%q}`+"\n", n, at)
	}
	fmt.Fprintf(&text, `{"rows":%d}`+"\n", calls)

	errEnd := errors.New("ended")
	store := &failing{Store: to, fail: func(call int) (error, error) {
		return map[int]error{2: driver.ErrUnavailable}[call], map[int]error{1: driver.ErrUnavailable, 4: errEnd}[call]
	}}
	_, err := ledgerfile.Import(t.Context(), store, strings.NewReader(text.String()), limits, time.Now)
	check.Is(t, err, errEnd)
	must.Equal(t, used(t, to), 2*driver.MaxImport, "used when it was ended")
	got := must.Get(ledgerfile.Import(t.Context(), store, strings.NewReader(text.String()), limits, time.Now))(t)
	check.Equal(t, got.Before, 2*driver.MaxImport, "imported before")
	check.Equal(t, got.Added, calls-2*driver.MaxImport, "added")
	check.Equal(t, used(t, to), calls, "used")
}

// The buckets begin anew with the last part of an import, also where the rows fill the
// parts exactly.
func TestImportFillsBuckets(t *testing.T) {
	bucket := []limit.Limit{{Name: "b", Limit: 100_000, Counts: limit.CountCalls, Window: limit.BucketWindow(must.Get(limit.NewRefill(1, time.Hour))(t))}}
	for _, calls := range []int{1, driver.MaxImport - 1, driver.MaxImport, driver.MaxImport + 1, 2 * driver.MaxImport} {
		from := memstore.New(nil)
		fill(t, from, calls)
		to := must.Get(sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "ledger.db"), sqlitestore.Options{Timeout: time.Minute}))(t)
		look := driver.Look{Budget: budget, Now: time.Now().UnixMicro(), Limits: bucket}
		must.Get(to.Decide(t.Context(), driver.Batch{Budget: budget, Now: look.Now, Limits: bucket, Items: []driver.Item{{ID: "own", Operation: "op"}}}))(t)
		must.Get(ledgerfile.Import(t.Context(), to, bytes.NewReader(export(t, from)), bucket, time.Now))(t)
		status := must.Get(to.Look(t.Context(), look))(t)
		check.Equal(t, status.Limits[0].Used > int64(calls), true, "used after", calls, "calls:", status.Limits[0].Used)
		must.Do(t, to.Close())
	}
}

// A file that was cut off anywhere, or changed, is refused before anything is imported.
func TestCheckRefuses(t *testing.T) {
	from := memstore.New(nil)
	fill(t, from, 2)
	file := export(t, from)
	for cut := range len(file) - 1 {
		_, err := ledgerfile.Check(bytes.NewReader(file[:cut]))
		if !errors.Is(err, ledgerfile.ErrNotExport) {
			t.Fatalf("cut after %d bytes: %v", cut, err)
		}
	}
	end := lastLine(file)
	for _, one := range [][2]string{
		{end + "\n", end + "\n{}\n"},
		{`"quotactl_export":5`, `"quotactl_export":6`},
		{`"budget":"up/key1"`, `"budget":"up"`},
		{`"operation":"op","units":1`, `"operation":"op","units":-1`},
		{`"units":1,`, ``},
		{`"units":1,"at":"`, `"units":1,"at":null,"run":"`},
		{`,"until":"`, `,"run":"`},
		{`{"rows":`, `{"rows":1`},
		{end, end + "}"},
		{`"operation":"op"`, `"operation":"o p"`},
		{`"job":"j"`, `"job":"j","colour":"red"`},
		{`"run":"j/1:US"`, `"run":"|"`},
		{`"id":"id-1"`, `"id":" id-1"`},
		{`"state":"open"`, `"state":"ajar"`},
		{`"at":"20`, `"at":"30`},
		{`"operation":"op","units":1,`, `"operation":"op","units":1,"calls":2,`},
		{`"run":"j/1:US"`, `"run":"j/1:US","as_of":"2026-01-01T00:00:00Z"`},
		{`,"as_of":"20`, `,"as_of":"30`},
		{`"units":1,"at"`, `"units":1,"asked":1000000000000001,"at"`},
		{"\n" + end, "\n\n" + end},
	} {
		was, is := one[0], one[1]
		changed := strings.Replace(string(file), was, is, 1)
		must.Equal(t, changed != string(file), true, was, "is in the file")
		_, err := ledgerfile.Check(strings.NewReader(changed))
		if !errors.Is(err, ledgerfile.ErrNotExport) || !strings.Contains(err.Error(), "line ") {
			t.Errorf("%s: %v", is, err)
		}
	}
}

// A file names what is wrong with it in the words of the file.
func TestCheckSaysWhatIsWrong(t *testing.T) {
	const head = `{"quotactl_export":1,"budget":"a/b","export":"x","ledger":"L","at":"2026-01-01T00:00:00Z"}` + "\n"
	row := func(units string) string {
		return `{"id":"a","operation":"op","units":` + units + `,"at":"2026-01-01T00:00:00Z"}` + "\n"
	}
	merged := func(id string) string {
		return `{"id":" L/` + id + `","operation":"op","state":"merged","units":1,"calls":1000000000000000,"at":"2026-01-01T00:00:00Z"}` + "\n"
	}
	for text, want := range map[string]string{
		row(`"7"`):                      `line 2: "units" has the wrong type: string`,
		row(`[]`):                       `line 2: "units" has the wrong type: array`,
		"\n":                            "line 2: the line is not one JSON object",
		"[1]\n":                         "line 2: the line is not one JSON object",
		"{\n":                           "line 2: the line is not one JSON object",
		"{}{}\n":                        "line 2: the line is not one JSON object",
		`{"colour":"red"}` + "\n":       `line 2: json: unknown field "colour"`,
		`{"at":"noon"}` + "\n":          `line 2: the instant "noon" is not of the form 2006-01-02T15:04:05.000000Z`,
		merged(strings.Repeat("9", 16)): `line 2: invalid call: id " L/9999999999999999": the number of a merged row has at most 15 digits`,
		strings.Repeat(row("1000000000000000"), 10): "line 11: its rows up to here add up to more than 9000000000000000 units or calls",
		strings.Repeat(merged("1"), 10):             "line 11: its rows up to here add up to more than 9000000000000000 units or calls",
	} {
		_, err := ledgerfile.Check(strings.NewReader(head + text + `{"rows":1}` + "\n"))
		check.Is(t, err, ledgerfile.ErrNotExport)
		check.Equal(t, err.Error(), "not a whole export: "+want)
	}
	for _, late := range []string{"since", "forgotten_up_to"} {
		text := strings.Replace(head, "}", `,"`+late+`":"2026-01-01T00:00:01Z"}`, 1)
		_, err := ledgerfile.Check(strings.NewReader(text + `{"rows":0}` + "\n"))
		check.Contains(t, fmt.Sprint(err), "line 1: invalid call: the ledger began at")
	}
	for _, fits := range []string{row("1"), merged(strings.Repeat("9", 15))} {
		_, err := ledgerfile.Check(strings.NewReader(head + fits + `{"rows":1}` + "\n"))
		must.Do(t, err)
	}
}

// What Open gives is read twice, also of a pipe.
func TestOpenReadsAPipeTwice(t *testing.T) {
	r, w, err := os.Pipe()
	must.Do(t, err)
	defer r.Close() //nolint:errcheck // Open has read it
	go func() {
		_, _ = io.WriteString(w, strings.Repeat("0123456789", 100_000))
		_ = w.Close()
	}()
	f := must.Get(ledgerfile.Open(fmt.Sprintf("/dev/fd/%d", r.Fd())))(t)
	for range 2 {
		must.Get(f.Seek(0, io.SeekStart))(t)
		check.Equal(t, len(must.Get(io.ReadAll(f))(t)), 1_000_000, "bytes")
	}
	must.Do(t, f.Close())
}

// drifted is a store with a charge and 5 units of drift.
func drifted(t *testing.T) *memstore.Store {
	store := memstore.New(nil)
	fill(t, store, 2)
	must.Get(driver.Apply(t.Context(), store, driver.Report{Budget: budget, Now: time.Now().UnixMicro(), Limits: limits, Limit: "w", Used: 6}))(t)
	return store
}

// drift is what a store's history has beside the charges.
func drift(t *testing.T, store driver.Store) (units, calls int64) {
	t.Helper()
	for _, row := range must.Get(store.History(t.Context(), driver.HistoryQuery{Budget: budget, Now: time.Now().UnixMicro()}))(t).Rows {
		if row.Pseudo() {
			units, calls = units+row.Units, calls+row.Calls
		}
	}
	return units, calls
}

// Drift has no calls, in a file of version 2 too, which left out the number.
func TestImportKeepsDrift(t *testing.T) {
	from := drifted(t)
	units, calls := drift(t, from)
	must.Equal(t, fmt.Sprint(units, calls), "5 0", "units and calls of drift")
	file := string(export(t, from))
	older := strings.ReplaceAll(strings.Replace(file, `"quotactl_export":5`, `"quotactl_export":2`, 1), `"calls":0,`, "")
	must.Equal(t, len(older) < len(file), true, "the file has rows with no calls")
	for _, text := range []string{file, older} {
		to := memstore.New(nil)
		must.Get(ledgerfile.Import(t.Context(), to, strings.NewReader(text), limits, time.Now))(t)
		units, calls := drift(t, to)
		check.Equal(t, fmt.Sprint(units, calls), "5 0", "units and calls of imported drift")
	}
	negative := strings.Replace(file, `"state":"history","units":5,`, `"state":"history","units":-5,`, 1)
	must.Equal(t, negative != file, true, "the file has the drift")
	_, err := ledgerfile.Check(strings.NewReader(negative))
	check.Is(t, err, ledgerfile.ErrNotExport)
	check.Contains(t, fmt.Sprint(err), "of drift/w, which is never taken back")
}

// A file older than what a ledger has of another history changes nothing there, also one of
// a version whose rows do not say of which instant they are.
func TestImportOlderHistory(t *testing.T) {
	at := time.Now().UnixMicro()
	from, to := memstore.New(func() int64 { return at }), memstore.New(func() int64 { return at })
	fill(t, from, 2)
	older := string(export(t, from))
	row := older[strings.Index(older, `,"as_of":"`):]
	row = row[:strings.Index(row, "}")]
	unknown, nameless := strings.Replace(older, row, `,"as_of":null`, 1), strings.Replace(older, row, "", 1)
	nameless = strings.Replace(nameless, `"quotactl_export":5`, `"quotactl_export":3`, 1)
	at += 1_000_000
	fill(t, from, 3)
	newer := string(export(t, from))
	at += 1_000_000
	_, rows, _ := strings.Cut(unknown, "\n")
	head, _, _ := strings.Cut(newer, "\n")
	unknown = head + "\n" + rows // exported as late as the newer one
	for round, one := range []struct {
		file  string
		calls int64
	}{{older, 2}, {newer, 3}, {older, 3}, {nameless, 3}, {unknown, 3}, {newer, 3}} {
		file := strings.Replace(one.file, `"export":"`, fmt.Sprintf(`"export":"%d`, round), 1) // as if it were new
		must.Get(ledgerfile.Import(t.Context(), to, strings.NewReader(file), limits, time.Now))(t)
		past := must.Get(to.History(t.Context(), driver.HistoryQuery{Budget: budget, Now: at}))(t)
		check.Equal(t, past.Rows[0].Calls, one.calls, "calls in round", round)
	}
}

// forgotten is a store that has a budget's history and no ledger of it.
type forgotten struct {
	driver.Store
	at int64
}

func (f forgotten) Export(_ context.Context, _ driver.Export, to driver.LedgerWriter) error {
	hour := driver.HourOf(f.at)
	row := driver.Row{ID: "L", State: driver.RowHistory, Operation: "op", Units: 7, Calls: 2, Start: hour, Score: hour}
	return errors.Join(to.Head(driver.LedgerHead{At: f.at}), to.Row(row))
}

// A history whose ledger is gone has a file, too.
func TestImportHistoryAlone(t *testing.T) {
	now := time.Now()
	file, to := export(t, forgotten{at: now.UnixMicro()}), memstore.New(nil)
	for range 2 {
		got := must.Get(ledgerfile.Import(t.Context(), to, bytes.NewReader(file), limits, time.Now))(t)
		check.Equal(t, fmt.Sprint(got.Head.Ledger, got.Rows, got.History), fmt.Sprint("", 0, 1), "ledger, rows and hours")
		past := must.Get(to.History(t.Context(), driver.HistoryQuery{Budget: budget, Now: time.Now().UnixMicro()}))(t)
		check.Equal(t, fmt.Sprint(past.Rows), fmt.Sprint([]driver.HistoryRow{{Units: 7, Calls: 2}}), "rows of the copy")
	}
}

// The history of files of version 1 lacks all of their charges, that of version 2 none.
func TestHistoryOfOlderFiles(t *testing.T) {
	head := func(version int, more string) driver.LedgerHead {
		text := fmt.Sprintf(`{"quotactl_export":%d,"budget":"a/b","export":"x","ledger":"L","at":"2026-01-01T00:00:00Z"%s}`+"\n"+`{"rows":0}`, version, more)
		return must.Get(ledgerfile.Check(strings.NewReader(text)))(t).Head
	}
	check.Equal(t, head(1, "").Unnoted, head(1, "").At, "version 1")
	check.Equal(t, head(2, "").Unnoted, 0, "version 2")
	check.Equal(t, head(3, `,"not_in_history_up_to":"2025-12-31T23:59:59Z"`).Unnoted, head(3, "").At-1_000_000, "version 3")
}

// Rows of history below 0 take back what others of the same hour, operation, job and region have,
// and no more; nothing adds up to more than a budget can count.
func TestHistoryAddsUp(t *testing.T) {
	const head = `{"quotactl_export":3,"budget":"a/b","export":"x","ledger":"L","at":"2026-01-02T00:00:00Z","since":"2026-01-01T00:00:00Z","forgotten_up_to":"2026-01-01T00:00:00Z","not_in_history_up_to":"1970-01-01T00:00:00Z"}`
	type row struct {
		id, operation, job string
		units, calls       int64
		hour               int
	}
	for name, c := range map[string]struct {
		rows  []row
		wrong string
	}{
		"an end of an imported reservation": {[]row{{"L", "op", "j", -60, 0, 1}, {"A", "op", "j", 70, 1, 1}}, ""},
		"its release":                       {[]row{{"A", "op", "j", 70, 1, 1}, {"L", "op", "j", -70, -1, 1}}, ""},
		"units below 0":                     {[]row{{"L", "op", "j", -5, 1, 1}}, "has -5 units and 1 calls of op in the hour from 2026-01-01T01:00:00Z"},
		"calls below 0":                     {[]row{{"A", "op", "j", 5, 1, 1}, {"L", "op", "j", -5, -2, 1}}, "has 0 units and -1 calls of op"},
		"of another hour":                   {[]row{{"A", "op", "j", 5, 1, 1}, {"L", "op", "j", -5, -1, 2}}, "has -5 units"},
		"of another operation":              {[]row{{"A", "op", "j", 5, 1, 1}, {"L", "other", "j", -5, -1, 1}}, "of other in"},
		"of another job":                    {[]row{{"A", "op", "j", 5, 1, 1}, {"L", "op", "k", -5, -1, 1}}, "has -5 units"},
		"as much as can be counted":         {[]row{{"A", "op", "j", limit.MaxUnits, 1, 1}, {"L", "op", "j", limit.MaxUnits, 1, 2}}, ""},
		"more than can be counted":          {[]row{{"A", "op", "j", limit.MaxUnits, 1, 1}, {"L", "op", "j", 1, 1, 1}}, "more than 1000000000000000 units or calls of op in one hour"},
		"more calls":                        {[]row{{"A", "op", "j", 1, limit.MaxUnits + 1, 1}}, "more than 1000000000000000 units or calls"},
		"far below 0":                       {[]row{{"A", "op", "j", -limit.MaxUnits - 1, 1, 1}}, "more than 1000000000000000 units or calls"},
	} {
		lines := []string{head}
		for _, r := range c.rows {
			lines = append(lines, fmt.Sprintf(`{"id":%q,"operation":%q,"state":"history","units":%d,"calls":%d,"job":%q,"at":"2026-01-01T0%d:00:00Z"}`, r.id, r.operation, r.units, r.calls, r.job, r.hour))
		}
		lines = append(lines, fmt.Sprintf(`{"rows":%d}`, len(c.rows)))
		err := check.Err(ledgerfile.Check(strings.NewReader(strings.Join(lines, "\n") + "\n")))
		if ok := err == nil; ok != (c.wrong == "") || !ok && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %v, want %q", name, err, c.wrong)
		}
	}
}

// FuzzExport holds Check to an answer for any file, and what it takes to a ledger that
// adds up.
func FuzzExport(f *testing.F) {
	from := memstore.New(nil)
	fill(f, from, 2)
	f.Add(export(f, from))
	f.Add([]byte(`{"quotactl_export":1,"budget":"a/b","export":"x"}` + "\n" + `{"rows":0}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		facts, err := ledgerfile.Check(bytes.NewReader(text))
		if err != nil {
			check.Is(t, err, ledgerfile.ErrNotExport)
			return
		}
		store := memstore.New(func() int64 { return facts.Head.At })
		got, err := ledgerfile.Import(t.Context(), store, bytes.NewReader(text), limits, func() time.Time { return time.UnixMicro(facts.Head.At) })
		must.Do(t, err)
		must.Equal(t, got.Added+got.Known+got.Gone, facts.Rows)
	})
}

// The sum of all entries is bounded, because a total counts them. None counts the
// history, which neither uses that up nor makes room.
func TestHistoryIsInNoTotal(t *testing.T) {
	const head = `{"quotactl_export":3,"budget":"a/b","export":"x","ledger":"L","at":"2026-01-02T00:00:00Z","since":"2026-01-01T00:00:00Z","forgotten_up_to":"2026-01-01T00:00:00Z","not_in_history_up_to":"1970-01-01T00:00:00Z"}`
	file := func(days, units, charges int64) error {
		rows := []string{head}
		for i := range days {
			rows = append(rows, fmt.Sprintf(`{"id":"L","operation":"op","state":"history","units":%d,"calls":5,"at":"2025-12-%02dT00:00:00Z"}`, units, 1+i))
		}
		for i := range charges {
			rows = append(rows, fmt.Sprintf(`{"id":"c%d","operation":"op","units":%d,"at":"2026-01-01T00:00:00Z"}`, i, limit.MaxUnits))
		}
		rows = append(rows, fmt.Sprintf(`{"rows":%d}`, days+charges))
		return check.Err(ledgerfile.Check(strings.NewReader(strings.Join(rows, "\n") + "\n")))
	}
	must.Do(t, file(20, limit.MaxUnits, 1))
	if err := file(20, -limit.MaxUnits, 10); err == nil || !strings.Contains(err.Error(), "its rows up to here add up to more than") {
		t.Errorf("ten charges of %d behind a history below 0: %v, want that they are too many", limit.MaxUnits, err)
	}
}
