package sqlitestore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// openFails opens what must not open, and wants the error to name its kind and
// to hold the words.
func openFails(t *testing.T, path string, kind error, words ...string) {
	t.Helper()
	s, err := sqlitestore.Open(t.Context(), path, sqlitestore.Options{})
	if err == nil {
		_ = s.Close()
		t.Fatalf("%s was opened", path)
	}
	must.Is(t, err, kind)
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q does not say %q", err, word)
		}
	}
}

func TestOpenRefusesNewerSchema(t *testing.T) {
	b := newBench(t, rolling(10, hour))
	b.granted(item("a", 1))
	b.close()
	execute(t, b.path, "PRAGMA user_version = 13")
	openFails(t, b.path, driver.ErrStoreConfig, "version 13", "up to 12", "newer quotactl")
	execute(t, b.path, "PRAGMA user_version = 12")
	b.open()
	must.Equal(t, b.used(), 1, "used: the refusal changed the file")
}

// A file that a newer program takes over while it is open is refused from then on,
// by every call, and nothing more is written to it.
func TestNewerSchemaMeanwhile(t *testing.T) {
	b := newBench(t, rolling(10, hour))
	b.granted(item("a", 1), lease(item("r", 1), hour))
	execute(t, b.path, "PRAGMA user_version = 13")
	_, decideErr := b.try(name, item("b", 1))
	_, finishErr := driver.FinishOne(t.Context(), b.store, name, b.now, driver.Finish{ID: "r", Units: 5})
	_, lookErr := b.store.Look(t.Context(), driver.Look{Budget: name, Now: b.now, Limits: b.limits})
	_, readErr := b.store.Job(t.Context(), "j")
	_, swapErr := b.store.SwapJob(t.Context(), driver.JobSwap{Job: "j", Text: []byte("{}")})
	for what, err := range map[string]error{"charge": decideErr, "settle": finishErr, "look": lookErr, "job": readErr, "swap": swapErr} {
		if !errors.Is(err, driver.ErrStoreConfig) || !strings.Contains(err.Error(), "version 13") || !strings.Contains(err.Error(), "newer quotactl") {
			t.Errorf("%s: %v, want ErrStoreConfig that names the version", what, err)
		}
	}
	execute(t, b.path, "PRAGMA user_version = 12")
	b.granted(item("b", 1))
	check.Equal(t, b.used(), 3, "used: something was written meanwhile")
}

// toTenth turns a file into one of schema 10.
var toTenth = []string{"ALTER TABLE budget DROP COLUMN plans", "ALTER TABLE budget DROP COLUMN holds", "PRAGMA user_version = 10"}

// toNinth turns a file into one of schema 9, if nothing waits in its budgets' rows.
var toNinth = append(slices.Clone(toTenth), []string{
	`CREATE TABLE old (
		b INTEGER NOT NULL, id TEXT NOT NULL,
		lane INTEGER NOT NULL, score INTEGER NOT NULL,
		start INTEGER NOT NULL,
		asked INTEGER NOT NULL, units INTEGER NOT NULL,
		state INTEGER NOT NULL,
		job INTEGER NOT NULL, region INTEGER NOT NULL, run INTEGER NOT NULL,
		calls INTEGER NOT NULL DEFAULT 1,
		observed INTEGER NOT NULL DEFAULT 0,
		PRIMARY KEY (b, id)
	) WITHOUT ROWID`,
	"INSERT INTO old SELECT b, id, lane, score, coalesce(start, score), coalesce(asked, units), units, state & 7, job, region, run, calls, state >> 3 FROM entry",
	"DROP TABLE entry", "DROP TABLE entry_id", "DROP TABLE entry_sum", "ALTER TABLE old RENAME TO entry",
	"CREATE INDEX entry_walk ON entry(b, lane, score, units, calls)",
	"ALTER TABLE budget DROP COLUMN hot", "ALTER TABLE budget DROP COLUMN summed", "PRAGMA user_version = 9",
}...)

// toEighth turns a file into one of schema 8.
var toEighth = append(slices.Clone(toNinth), "ALTER TABLE history DROP COLUMN as_of", "PRAGMA user_version = 8")

// toSeventh turns a file into one of schema 7.
var toSeventh = append(slices.Clone(toEighth), "DROP TABLE history_day", "ALTER TABLE budget DROP COLUMN unnoted", "PRAGMA user_version = 7")

// A file of an older schema is taken over, with what it holds.
func TestOpenMigrates(t *testing.T) {
	toSixth := append(slices.Clone(toSeventh), "ALTER TABLE budget DROP COLUMN split", "ALTER TABLE budget DROP COLUMN tables", "DROP TABLE series", "DROP TABLE history", "PRAGMA user_version = 6")
	toFifth := append(slices.Clone(toSixth), "ALTER TABLE budget DROP COLUMN imports", "PRAGMA user_version = 5")
	toFourth := []string{
		"ALTER TABLE budget DROP COLUMN id", "ALTER TABLE budget DROP COLUMN newest_id", "ALTER TABLE budget DROP COLUMN loss", "ALTER TABLE budget DROP COLUMN reset_at", "ALTER TABLE budget DROP COLUMN changes",
		"ALTER TABLE budget DROP COLUMN hosts", "PRAGMA user_version = 4",
	}
	toThird := []string{
		"DROP TABLE job", "DROP TABLE job_value", "DROP TABLE job_record", "DROP TABLE job_clock",
		`CREATE TABLE job (
			name TEXT PRIMARY KEY,
			next_region TEXT NOT NULL, last_tick INTEGER NOT NULL, last_manual INTEGER NOT NULL,
			last BLOB,
			holder TEXT NOT NULL, held_until INTEGER NOT NULL,
			boot_id TEXT NOT NULL
		) WITHOUT ROWID`,
		`CREATE TABLE job_clock (
			one INTEGER PRIMARY KEY CHECK (one = 1),
			boot_id TEXT NOT NULL, boot_offset INTEGER NOT NULL
		)`,
		"INSERT INTO job VALUES ('j', 'US', 1, 0, NULL, 'h', 2, 'boot')", "INSERT INTO job_clock VALUES (1, 'boot', 3)", "PRAGMA user_version = 3",
	}
	toSecond := []string{"DROP TABLE lock", "ALTER TABLE entry DROP COLUMN observed", "PRAGMA user_version = 2"}
	toFirst := []string{
		"DROP TABLE meter", "DROP INDEX entry_walk",
		"ALTER TABLE budget DROP COLUMN merged", "ALTER TABLE budget DROP COLUMN row_no",
		"ALTER TABLE entry DROP COLUMN calls", "ALTER TABLE win DROP COLUMN precision",
		"CREATE INDEX entry_walk ON entry(b, lane, score, units)", "PRAGMA user_version = 1",
	}
	for what, changes := range map[string][]string{
		"the first": slices.Concat(toFifth, toFourth, toThird, toSecond, toFirst), "the second": slices.Concat(toFifth, toFourth, toThird, toSecond),
		"the third": slices.Concat(toFifth, toFourth, toThird), "the fourth": slices.Concat(toFifth, toFourth), "the fifth": toFifth, "the sixth": toSixth, "the seventh": toSeventh, "the eighth": toEighth, "the ninth": toNinth, "the tenth": toTenth,
	} {
		t.Run(what, func(t *testing.T) {
			b := newBench(t, rolling(10, hour))
			b.granted(item("a", 3))
			b.granted(lease(item("r", 2), minute))
			must.Do(t, sqlitestore.WriteOut(b.store, name))
			b.close()
			for _, change := range changes {
				execute(t, b.path, change)
			}
			b.open()
			must.Equal(t, b.used(), 5, "used of a file of an older schema")
			b.granted(item("b", 5))
			must.Equal(t, b.used(), 10, "used once it is taken over")
			b.lock("", noon+2*hour, false)
			must.Equal(t, must.Get(b.store.Job(t.Context(), "j"))(t).Version, 0, "a job of an older schema:, want no document")
			b.swap(driver.JobSwap{Job: "j", Text: []byte("{}"), Values: map[string][]byte{"x": []byte("1")}, Records: []driver.JobRecord{{At: noon, ID: "r"}}})
			b.close()
			check.Equal(t, query[int](t, b.path, "PRAGMA user_version"), 12, "version after that")
			b.open() // and once more, without a conversion
			check.Equal(t, b.used(), 10, "used when it is opened again")
			b.refused(item("c", 1), noon+2*hour)
		})
	}
}

func TestOpenRefusesOtherPrograms(t *testing.T) {
	path := filepath.Join(t.TempDir(), "other.db")
	execute(t, path, "CREATE TABLE theirs(x)")
	openFails(t, path, driver.ErrStoreConfig, "another program", "another path")
	check.Equal(t, query[string](t, path, "PRAGMA journal_mode"), "delete", "the other program's file was changed to journal mode")
	check.Equal(t, query[int](t, path, "SELECT count(*) FROM sqlite_schema"), 1, "the other program's file has … tables, had 1")
}

func TestOpenRefusesWhatIsNoDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "costs.toml")
	text := []byte(strings.Repeat("# a configuration, not a store\n", 100))
	must.Do(t, os.WriteFile(path, text, 0o600))
	openFails(t, path, driver.ErrStoreConfig, "not a SQLite file")
	if got, err := os.ReadFile(path); err != nil || string(got) != string(text) {
		t.Errorf("the file was changed (%v)", err)
	}
}

func TestOpenRefusesPlaces(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must.Do(t, os.WriteFile(file, nil, 0o600))
	openFails(t, filepath.Join(dir, "missing", "q.db"), driver.ErrStoreConfig, "make the directory")
	openFails(t, filepath.Join(file, "q.db"), driver.ErrStoreConfig, "make the directory")
	openFails(t, dir, driver.ErrStoreConfig, "writable")
	openFails(t, "", driver.ErrStoreConfig, "path of a file")
}

// A directory on a network file system is refused before anything is made there,
// and serves once it lies elsewhere.
func TestNetworkFileSystemIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "q.db")
	must.Equal(t, must.Get(sqlitestore.NetworkKind(filepath.Dir(path)))(t), "", "a local directory")
	end := sqlitestore.LieOn("NFS")
	defer end()
	openFails(t, path, driver.ErrStoreConfig, "NFS", filepath.Dir(path), "use a local disk, or a Redis store")
	if left, err := filepath.Glob(path + "*"); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	end()
	s := must.Get(sqlitestore.Open(t.Context(), path, sqlitestore.Options{}))(t)
	must.Do(t, s.Close())
}

func TestPathsAreTakenLiterally(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a b?mode=memory#%41.db")
	s := must.Get(sqlitestore.Open(t.Context(), path, sqlitestore.Options{}))(t)
	must.Do(t, s.Close())
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("the file is not where it was asked for: %v", err)
	}
}

func TestDurable(t *testing.T) {
	b := newBench(t)
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2"} {
		check.Equal(t, sqlitestore.Pragma(b.store, pragma), want, pragma)
	}
}

// TestOpenTogether makes one file from many goroutines, each with a store of its
// own, and charges from all of them.
func TestOpenTogether(t *testing.T) {
	path := filepath.Join(t.TempDir(), "q.db")
	const stores, charges = 8, 25
	limits := []limit.Limit{rolling(stores*charges-10, hour)}
	granted := make(chan int, stores)
	var all sync.WaitGroup
	for i := range stores {
		all.Go(func() {
			n := 0
			defer func() { granted <- n }()
			s, err := sqlitestore.OpenWithClock(context.Background(), path, sqlitestore.Options{Timeout: patience}, func() int64 { return noon })
			if err != nil {
				t.Errorf("open: %v", err)
				return
			}
			defer func() { _ = s.Close() }()
			for k := range charges {
				got, err := s.Decide(context.Background(), driver.Batch{Budget: name, Now: noon, Limits: limits, Items: []driver.Item{item(fmt.Sprint(i, "-", k), 1)}})
				if err != nil {
					t.Errorf("decide: %v", err)
					return
				}
				if got.Items[0].Result == driver.Granted {
					n++
				}
			}
		})
	}
	all.Wait()
	sum := 0
	for range stores {
		sum += <-granted
	}
	if sum != stores*charges-10 {
		t.Fatalf("granted %d, want exactly the limit of %d", sum, stores*charges-10)
	}
}
