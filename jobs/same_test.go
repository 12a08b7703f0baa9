package jobs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs/schedule"
)

// readings has the job that each text is read as, from one file.
func readings(t *testing.T, texts ...string) []*Job {
	t.Helper()
	path := filepath.Join(t.TempDir(), "costs.toml")
	var list []*Job
	for _, text := range texts {
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		cfg := must.Get(config.Parse(path))(t)
		found := Load(cfg)
		if err := cfg.Err(); err != nil || len(found) != 1 {
			t.Fatalf("%d jobs, %v:\n%s", len(found), err, text)
		}
		list = append(list, found[0])
	}
	return list
}

const sameJob = `[upstream.shop.costs]
"get" = 1
"list" = 2
[upstream.shop.limit.daily]
limit = 100
window = "24h"
[upstream.shop.credential.main]
secret_env = "KEY"
[job.pull]
budget = "shop/main"
schedule = "0 4 * * *"
timezone = "Europe/London"
regions = ["US", "DE"]
needs = { "get" = 2 }
[job.pull.fetch]
operation = "get"
url = "https://shop.invalid/{region}"
secret = { query = "key" }
output = "{region}/{tick}"
`

// A job is the same when its table says the same; each key of it counts, and so
// does where its secret comes from.
func TestSame(t *testing.T) {
	for _, c := range []struct {
		from, to string
		same     bool
	}{
		{"", "", true},
		{`"list" = 2`, `"list" = 3`, true}, // the budget's, not the job's
		{"[job.pull]", "# A word.\n[job.pull]", true},
		{`"0 4 * * *"`, `"0 5 * * *"`, false},
		{`"Europe/London"`, `"Europe/Lisbon"`, false}, // whose clocks agree
		{`["US", "DE"]`, `["DE", "US"]`, false},
		{`"get" = 2 }`, `"list" = 1 }`, false},
		{`regions`, "stagger = \"1m\"\nregions", false},
		{`regions`, "grace = \"1m\"\nregions", false},
		{`regions`, "retries = 1\nregions", false},
		{`operation = "get"`, `operation = "list"`, false},
		{`shop.invalid`, `shop.example`, false},
		{`{ query = "key" }`, `{ header = "X-Key" }`, false},
		{`secret_env = "KEY"`, `secret_env = "OTHER"`, false},
	} {
		if !strings.Contains(sameJob, c.from) {
			t.Fatalf("%q is not in the configuration", c.from)
		}
		list := readings(t, sameJob, strings.Replace(sameJob, c.from, c.to, 1))
		check.Equal(t, Same(list[0], list[1]), c.same, c.to, "for", c.from, "same")
	}
}

// A zone holds what was so when it was read: two readings of one may differ.
func TestSameOnceAZoneIsReadAgain(t *testing.T) {
	list := readings(t, sameJob, sameJob)
	again := must.Get(schedule.ParseIn(list[1].Schedule.String(), time.FixedZone("Europe/London", 0)))(t)
	list[1].Schedule = again
	if !Same(list[0], list[1]) {
		t.Error("another reading of the zone makes another job")
	}
}
