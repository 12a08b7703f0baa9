package sqlitestore_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// damage is a way in which a file comes to be another than it was.
type damage struct {
	change func(t *testing.T, path string)
	kind   error // what is said of it
	says   string
}

// overwrite puts bytes in the place of a file's.
func overwrite(t *testing.T, path string, at int64, bytes []byte) {
	t.Helper()
	f := must.Get(os.OpenFile(path, os.O_RDWR, 0))(t)
	_, err := f.WriteAt(bytes, at)
	must.Do(t, errors.Join(err, f.Close()))
}

// A damaged file is refused with what to do, whether the fault shows when it is
// opened or at a charge, nothing is decided on it, and the backup serves without a change.
func TestDamagedFile(t *testing.T) {
	for what, d := range map[string]damage{
		"pages overwritten": {
			func(t *testing.T, path string) {
				info := must.Get(os.Stat(path))(t)
				garbage := make([]byte, info.Size()-4096)
				for i := range garbage {
					garbage[i] = 0xa5
				}
				overwrite(t, path, 4096, garbage)
			}, driver.ErrDamaged, "restore it from a backup",
		},
		"cut short": {
			func(t *testing.T, path string) {
				must.Do(t, os.Truncate(path, 3*4096))
			}, driver.ErrDamaged, "restore it from a backup",
		},
		"its beginning overwritten": {
			func(t *testing.T, path string) { overwrite(t, path, 0, []byte(strings.Repeat("no database ", 10))) },
			driver.ErrStoreConfig, "give another path",
		},
		"a table is gone":  {func(t *testing.T, path string) { execute(t, path, "DROP TABLE total") }, driver.ErrDamaged, "restore it from a backup"},
		"a column is gone": {func(t *testing.T, path string) { execute(t, path, "ALTER TABLE win DROP COLUMN floor") }, driver.ErrDamaged, "restore it from a backup"},
		"a charge is gone": {func(t *testing.T, path string) { execute(t, path, "DELETE FROM entry WHERE id = 'a4'") }, driver.ErrDamaged, "restore it from a backup"},
		"its totals cut short": {func(t *testing.T, path string) {
			execute(t, path, "UPDATE budget SET hot = substr(hot, 1, 9)")
		}, driver.ErrDamaged, "restore it from a backup"},
		"its totals cut off from its history": {func(t *testing.T, path string) { execute(t, path, "UPDATE budget SET hot = x'00'") }, driver.ErrDamaged, "restore it from a backup"},
		"its holds cut short":                 {func(t *testing.T, path string) { execute(t, path, "UPDATE budget SET holds = '[{'") }, driver.ErrDamaged, "restore it from a backup"},
		"a hold is gone":                      {func(t *testing.T, path string) { execute(t, path, "UPDATE budget SET holds = '[null]'") }, driver.ErrDamaged, "restore it from a backup"},
		"another's from now":                  {func(t *testing.T, path string) { execute(t, path, "PRAGMA application_id = 7") }, driver.ErrStoreConfig, "another program"},
		"a newer version's":                   {func(t *testing.T, path string) { execute(t, path, "PRAGMA user_version = 99") }, driver.ErrStoreConfig, "newer quotactl"},
	} {
		t.Run(what, func(t *testing.T) {
			b := newBench(t, rolling(100, hour))
			for _, id := range []string{"a1", "a2", "a3", "a4"} {
				b.granted(item(id, 2))
			}
			b.close() // the last to close it writes the log back
			backup := must.Get(os.ReadFile(b.path))(t)
			d.change(t, b.path)
			if err := b.tryToOpen(); err == nil {
				got, decideErr := b.try(name, item("b", 1))
				if decideErr == nil {
					t.Fatalf("decided on a damaged file: %+v", got)
				}
				err = decideErr
				d.told(t, err)
				if _, err := b.store.Look(t.Context(), driver.Look{Budget: name, Now: b.now, Limits: b.limits}); err != nil {
					d.told(t, err)
				}
				b.close()
			} else {
				d.told(t, err)
			}
			for _, suffix := range []string{"-wal", "-shm"} { // they belong to the file that was
				if err := os.Remove(b.path + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
					t.Fatal(err)
				}
			}
			must.Do(t, os.WriteFile(b.path, backup, 0o600))
			b.open()
			b.granted(item("b", 1))
			check.Equal(t, b.used(), 9, "used after the backup was restored")
		})
	}
}

// The doctor reports missing entries, and counts them.
func TestEntriesAreCounted(t *testing.T) {
	b := newBench(t, rolling(100, hour))
	b.granted(item("a1", 2), item("a2", 2), item("a3", 2))
	integrity := func() driver.Finding {
		found := b.store.Diagnose(t.Context())
		return found[slices.IndexFunc(found, func(f driver.Finding) bool { return f.Check == "integrity" })]
	}
	check.Equal(t, integrity().Level, driver.OK)
	execute(t, b.path, "DELETE FROM entry WHERE id = 'a1'")
	if got := integrity(); got.Level != driver.Fault || !strings.Contains(got.Says, "it holds 2 entries where 3 were recorded") {
		t.Errorf("%+v, want that one of 3 entries is missing", got)
	}
}

// The doctor also reports a sum that differs from its entries.
func TestSumsAreChecked(t *testing.T) {
	b := newBench(t, rolling(100, hour))
	sqlitestore.SetSums(b.store, 2)
	for i := range 8 {
		b.now += second // sums are of entries up to now
		b.granted(item(fmt.Sprint("a", i), 2))
	}
	if n := must.Get(sqlitestore.CheckSums(t.Context(), b.store))(t); n != 4 {
		t.Fatalf("%d sums of 8 entries, want 4", n)
	}
	execute(t, b.path, "UPDATE entry_sum SET units = units + 1 WHERE upto = (SELECT max(upto) FROM entry_sum)")
	found := b.store.Diagnose(t.Context())
	got := found[slices.IndexFunc(found, func(f driver.Finding) bool { return f.Check == "integrity" })]
	if got.Level != driver.Fault || !strings.Contains(got.Says, "a sum of its entries is 5 units, and they are 4") {
		t.Errorf("%+v, want that a sum is wrong", got)
	}
}

// told holds an error against what a person needs to know.
func (d damage) told(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, d.kind) || errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), d.says) || !strings.Contains(err.Error(), "q.db") {
		t.Errorf("error %v, want %v that says %q and names the file", err, d.kind, d.says)
	}
}
