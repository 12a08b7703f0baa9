package jobs

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
)

// manyJobs is a configuration of so many jobs, of mixed zones, schedules and
// staggers, fetches and commands.
func manyJobs(n int) string {
	zones := []string{"UTC", "America/New_York", "Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe", "America/Sao_Paulo", "Africa/Cairo"}
	specs := []string{"0 */3 * * *", "15 4 * * *", "*/10 * * * *", "@every 90m", "30 9 * * 1-5", "0 0 1 * *", "@hourly", "5 0 1 1 *"}
	var text strings.Builder
	text.WriteString(tables)
	for i := range n {
		fmt.Fprintf(&text, "[job.job%d]\nbudget = \"youtube/key1\"\nschedule = %q\nregions = [\"US\", \"GB\", \"DE\", \"FR\"]\nstagger = \"4m\"\n", i, specs[i%len(specs)])
		if !strings.HasPrefix(specs[i%len(specs)], "@every") {
			fmt.Fprintf(&text, "timezone = %q\n", zones[i%len(zones)])
		}
		if i%3 == 0 {
			fmt.Fprintf(&text, "command = [\"true\", \"{region}\"]\n")
			continue
		}
		fmt.Fprintf(&text, "[job.job%d.fetch]\noperation = \"videos.list\"\nurl = \"https://upstream.test/v3/videos?r={region}\"\nsecret = { query = \"key\" }\noutput = \"data/{job}/{region}/{tick}.ndjson\"\n", i)
	}
	return text.String()
}

// A thousand jobs, from the file to the loop.
func BenchmarkLoad(b *testing.B) {
	path := filepath.Join(b.TempDir(), "costs.toml")
	noError(b, os.WriteFile(path, []byte(manyJobs(1000)), 0o600))
	b.ReportAllocs()
	for b.Loop() {
		cfg, err := config.Parse(path)
		noError(b, err)
		list := Load(cfg)
		if cfg.Err() != nil || len(list) != 1000 {
			b.Fatal(cfg.Err(), len(list))
		}
		if _, err := New(list, Options{Budgets: map[string]*budget.Budget{"youtube/key1": {}}}); err != nil {
			b.Fatal(err)
		}
	}
}

// What is read of a configuration is read once: eight times the jobs take eight
// times the memory, where a look at the whole file for each key took fifty.
func TestLoadGrowsWithTheJobs(t *testing.T) {
	taken := func(n int) float64 {
		path := filepath.Join(t.TempDir(), "costs.toml")
		noError(t, os.WriteFile(path, []byte(manyJobs(n)), 0o600))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		cfg, err := config.Parse(path)
		noError(t, err)
		if list := Load(cfg); cfg.Err() != nil || len(list) != n {
			t.Fatalf("%d of %d jobs: %v", len(list), n, cfg.Err())
		}
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc - before.TotalAlloc)
	}
	few, many := taken(60), taken(480)
	if many/few > 12 {
		t.Errorf("60 jobs take %.0f bytes, 480 take %.0f: %.1f times as many", few, many, many/few)
	}
}
