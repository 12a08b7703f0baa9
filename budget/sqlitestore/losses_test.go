package sqlitestore_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/storetest"
)

// What a host knew to be used is never granted anew, however often the file is
// removed or an older one put in its place.
func TestLosses(t *testing.T) { testLosses(t, 1) }

func TestLossesOfThreeHosts(t *testing.T) { testLosses(t, 3) }

// Charges on both sides of a split are added up after it.
func TestSplits(t *testing.T) {
	t.Parallel()
	storetest.Splits(t, lossyData(t))
}

func testLosses(t *testing.T, hosts int) {
	t.Parallel()
	storetest.Losses(t, lossyData(t), hosts)
}

func lossyData(t *testing.T) storetest.Lossy {
	t.Helper()
	path := filepath.Join(t.TempDir(), "q.db")
	remove := func() {
		for _, suffix := range []string{"", "-wal", "-shm"} {
			must.Do(t, os.RemoveAll(path+suffix))
		}
	}
	return storetest.Lossy{
		Alone: true, // nothing may touch the file while a process uses it
		Open: func(clock func() int64) driver.Store {
			s := must.Get(sqlitestore.OpenWithClock(t.Context(), path, sqlitestore.Options{Timeout: patience}, clock))(t)
			return s
		},
		Lose: map[string]func(){"removed": remove},
		Keep: func() func() {
			data, err := os.ReadFile(path)
			if !os.IsNotExist(err) {
				must.Do(t, err)
			}
			return func() {
				remove()
				if data != nil {
					must.Do(t, os.WriteFile(path, data, 0o600))
				}
			}
		},
	}
}
