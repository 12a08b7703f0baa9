package jobs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget"
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
	if err := os.WriteFile(path, []byte(manyJobs(1000)), 0o600); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		cfg, err := budget.ParseConfig(path)
		if err != nil {
			b.Fatal(err)
		}
		list := Load(cfg)
		if cfg.Err() != nil || len(list) != 1000 {
			b.Fatal(cfg.Err(), len(list))
		}
		if _, err := New(list, Options{Budgets: map[string]*budget.Budget{"youtube/key1": {}}}); err != nil {
			b.Fatal(err)
		}
	}
}
