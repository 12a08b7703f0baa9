package open_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

const onFullDisk = `
state_dir = %q
[store]
url              = "sqlite:%s"
outage_allowance = 5
[upstream.up]
on_store_error = "open"
[upstream.up.costs]
list = 1
safe = { units = 1, on_store_error = "closed" }
[upstream.up.limit.day]
quota    = 100
headroom = 10
window   = "24h"
[upstream.up.credential.key1]
`

// On a disk that is full each call gets what its policy says: closed is refused
// with what to do, open spends the host's allowance, whether the store was open
// before or not. Once there is room all of it is recorded, without any repair.
func TestPolicyOnAFullDisk(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"open before", "opened then"} {
		t.Run(name, func(t *testing.T) {
			disk := t.TempDir()
			if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=4m"); err != nil {
				t.Logf("no file system may be mounted here: %v", err)
				return
			}
			defer func() { check.NoError(t, unix.Unmount(disk, 0)) }()
			filler := filepath.Join(disk, "filler")
			fill := func() {
				t.Helper()
				must.Is(t, os.WriteFile(filler, make([]byte, 5<<20), 0o600), unix.ENOSPC, "fill the disk")
			}
			config := write(t, fmt.Sprintf(onFullDisk, t.TempDir(), filepath.Join(disk, "q.db")))
			if name == "opened then" {
				fill()
			}
			b, err := open.Budget(t.Context(), config, "up/key1")
			must.Do(t, err)
			defer func() { check.NoError(t, b.Close()) }()
			charge := func(operation string) (budget.Receipt, error) {
				return b.Charge(t.Context(), budget.Call{Operation: operation})
			}
			charged := int64(0)
			if name == "open before" {
				fill()
				// Room that the files have left is used up first.
				for err = nil; err == nil; charged++ {
					_, err = charge("safe")
				}
				charged--
			} else {
				_, err = charge("safe")
			}
			if !errors.Is(err, budget.ErrUnavailable) || !strings.Contains(err.Error(), "make room") {
				t.Fatalf("a closed call: %v", err)
			}
			for range 3 {
				must.Equal(t, must.Get(charge("list"))(t).Source, budget.SourceAllowance, "an open call")
				charged++
			}
			must.Do(t, os.Remove(filler))
			for end := time.Now().Add(5 * time.Minute); ; {
				status, err := b.Status(t.Context())
				if err == nil {
					check.Equal(t, status.Limits[0].Used, charged, "used")
					return
				}
				if time.Now().After(end) {
					t.Fatal(err)
				}
			}
		})
	}
}
