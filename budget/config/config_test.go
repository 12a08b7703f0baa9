package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// fullConfig has every key but those of jobs.
const fullConfig = `
state_dir = "state"

[store]
url              = "sqlite:data/q.db"
prefix           = "team-a"
timeout          = "300ms"
hosts            = 4
outage_allowance = 30
refusal_memory   = "50ms"
password_file    = "/etc/q.password"

[upstream.youtube]
unknown_operation = 7
on_store_error    = "open"

[upstream.youtube.costs]
"search.list" = { units = 100, on_store_error = "closed" }
"videos.list" = 1

[upstream.youtube.limit.daily]
quota    = 10_000
headroom = 500
window   = "24h"

[upstream.youtube.limit.pacific]
quota    = 10_000
headroom = "0.015%"
calendar = "month"
timezone = "America/Los_Angeles"
starts   = "06:30"

[upstream.youtube.limit.search]
operations = ["search.*", "!search.other"]
limit      = 4_000
counts     = "calls"
window     = "90m"

[upstream.youtube.credential.key1]
secret_env = "YOUTUBE_API_KEY"
[upstream.youtube.credential.key2]
secret_file = "key2.txt"

[job.trending]
anything = 1
`

// parse writes a configuration to a file and reads it.
func parse(t *testing.T, text string) *Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "costs.toml")
	must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	return must.Get(Parse(file))(t)
}

func TestParseConfigReadsEveryKey(t *testing.T) {
	// The pattern "!search.other" must match a priced operation.
	c := parse(t, strings.Replace(fullConfig, `"videos.list" = 1`, "\"videos.list\" = 1\n\"search.other\" = 2", 1))
	must.Do(t, c.Err())
	dir := filepath.Dir(c.File)
	if want := filepath.Join(dir, "state"); c.StateDir != want {
		t.Errorf("state_dir %q, want %q", c.StateDir, want)
	}
	wantStore := Store{
		URL: "sqlite:" + filepath.Join(dir, "data/q.db"), Prefix: "team-a", Timeout: 300 * time.Millisecond,
		Hosts: 4, OutageAllowance: 30, RefusalMemory: 50 * time.Millisecond, PasswordFile: "/etc/q.password",
	}
	check.Equal(t, c.Store, wantStore, "store")
	if got, want := c.Budgets(), []string{"youtube/key1", "youtube/key2"}; !slices.Equal(got, want) {
		t.Errorf("budgets %v, want %v", got, want)
	}
	if len(c.Jobs) != 1 || c.Jobs[0].Key() != "trending" || !c.Jobs[0].IsTable() {
		t.Errorf("jobs %v, want the table of trending", c.Jobs)
	}
	u, key2, err := c.Find("youtube/key2")
	must.Do(t, err)
	if want := (Credential{Label: "key2", SecretFile: filepath.Join(dir, "key2.txt")}); !reflect.DeepEqual(key2, want) {
		t.Errorf("credential %+v, want %+v", key2, want)
	}
	calendar := must.Get(limit.NewCalendar(limit.Month, "America/Los_Angeles", 6*time.Hour+30*time.Minute))(t)
	wantLimits := []limit.Limit{
		{
			// A host may spend 30 of the headroom while the store is away, four hosts 120.
			Name: "daily", Quota: 10_000, Headroom: 500, Limit: 9_500, OutagePart: 120,
			Counts: limit.CountUnits, Window: limit.RollingWindow(24 * time.Hour),
		},
		{
			// 0.015% of 10,000 is 1.5, kept back as 2: too little for four hosts.
			Name: "pacific", Quota: 10_000, Headroom: 2, Limit: 9_998,
			Counts: limit.CountUnits, Window: limit.CalendarWindow(calendar),
		},
		{
			Name: "search", Limit: 4_000, Counts: limit.CountCalls, Window: limit.RollingWindow(90 * time.Minute),
			Operations: []string{"search.*", "!search.other"},
		},
	}
	if !reflect.DeepEqual(u.Limits, wantLimits) {
		t.Errorf("limits\n%+v, want\n%+v", u.Limits, wantLimits)
	}
	spec := must.Get(c.Spec("youtube/key1"))(t)
	wantSpec := budget.Spec{
		Name: "youtube/key1", Limits: wantLimits, Unknown: budget.Unknown{Allowed: true, Units: 7},
		Costs:        map[string]budget.Cost{"search.list": {Units: 100, OnStoreError: budget.Closed}, "videos.list": {Units: 1}, "search.other": {Units: 2}},
		OnStoreError: budget.Open, Timeout: 300 * time.Millisecond,
	}
	if !reflect.DeepEqual(spec, wantSpec) {
		t.Errorf("spec\n%+v, want\n%+v", spec, wantSpec)
	}
}

func TestParseConfigDefaults(t *testing.T) {
	c := parse(t, `upstream.shop = { costs = { get = 1 }, limit = { m = { limit = 60, window = "1m" } }, credential = { main = {} } }`)
	must.Do(t, c.Err())
	want := Store{URL: "sqlite:" + filepath.Join(filepath.Dir(c.File), "quotactl.db"), Prefix: "quotactl", Hosts: 1, RefusalMemory: 100 * time.Millisecond}
	check.Equal(t, c.Store, want, "store")
	check.Equal(t, c.StateDir, "", "store")
	if u := c.Upstreams[0]; u.Unknown.Allowed || u.OnStoreError != "" || u.Limits[0].Counts != limit.CountUnits {
		t.Errorf("upstream %+v, want unknown operations refused, no policy, units counted", u)
	}
}

// All faults are found at once, in the order of their lines, whatever table
// they stand in.
func TestParseConfigFindsAllFaults(t *testing.T) {
	c := parse(t, `[upstream.youtube.costs]
"search.list" = -1
[upstream.youtube.limit.daily]
quota  = 10_000
window = 24
[upstream.youtube.credential.key1]
[store]
hosts = 0
`)
	var faults Errors
	if !errors.As(c.Err(), &faults) {
		t.Fatalf("error %v, want ConfigErrors", c.Err())
	}
	var lines []int
	for _, f := range faults {
		lines = append(lines, f.Line)
		check.Equal(t, f.File, c.File, "fault in")
	}
	if want := []int{2, 5, 8}; !slices.Equal(lines, want) {
		t.Errorf("faults in lines %v, want %v:\n%v", lines, want, faults)
	}
	if _, err := Load(c.File); !errors.As(err, &faults) || len(faults) != 3 {
		t.Errorf("LoadConfig answers %v, want the three faults", err)
	}
}

// A store's objection to its URL is noted at the URL's line, once.
func TestStoreFault(t *testing.T) {
	fault := fmt.Errorf("%w: no such port", budget.ErrStoreConfig)
	for _, test := range []struct{ store, want string }{
		{"[store]\nprefix = \"p\"\nurl = \"redis://h:99999\"\n", ":3: no such port"},
		{"[store]\nurl = \"mysql://h\"\n", ":2: url does not name a store: begin it with sqlite:, redis://, rediss://, unix://, redis+sentinel://, redis+cluster://, redis+ring://"},
		{"[store]\nprefix = \"p\"\n", ""},
	} {
		c := parse(t, test.store+"[upstream.u.costs]\nop = 1\n[upstream.u.limit.l]\nlimit = 10\nwindow = \"1h\"\n[upstream.u.credential.k]\n")
		c.StoreFault(fault)
		got := ""
		if err := c.Err(); err != nil {
			got = strings.TrimPrefix(err.Error(), c.File)
		}
		check.Equal(t, got, test.want, test.store, "error")
	}
}

func TestParseConfigTooManyOperations(t *testing.T) {
	var text strings.Builder
	text.WriteString("[upstream.u.limit.l]\nlimit = 10\nwindow = \"1h\"\n[upstream.u.credential.k]\n[upstream.u.costs]\n")
	for i := range driver.MaxOperations {
		text.WriteString("op" + strconv.Itoa(i) + " = 1\n")
	}
	var faults Errors
	if c := parse(t, text.String()); !errors.As(c.Err(), &faults) || len(faults) != 1 || faults[0].Line != 5+driver.MaxOperations {
		t.Errorf("error %v, want one, at the line of operation %d", faults, driver.MaxOperations)
	}
}

func TestFindNamesTheBudgetsThereAre(t *testing.T) {
	c := parse(t, fullConfig)
	_, err := c.Spec("youtube/key3")
	if !errors.Is(err, budget.ErrUnknownBudget) || !strings.Contains(err.Error(), "youtube/key1, youtube/key2") {
		t.Errorf("error %v, want ErrUnknownBudget with the names there are", err)
	}
}

func TestParseConfigOfNoFile(t *testing.T) {
	_, err := Parse(filepath.Join(t.TempDir(), "none.toml"))
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "QUOTACTL_CONFIG") {
		t.Errorf("error %v, want os.ErrNotExist and how to name a file", err)
	}
}

// wrongShares says what is wrong with a limit's shares; empty: nothing.
func wrongShares(l limit.Limit) string {
	sum := int64(0)
	for i, s := range l.Shares {
		sum += s.Guarantee
		for _, other := range l.Shares[:i] {
			if a, b, both := s.Overlaps(other); both {
				return fmt.Sprintf("%q and %q can be the same job", a, b)
			}
		}
		for _, pattern := range s.Jobs {
			if job := strings.Replace(pattern, "*", "x", 1); l.ShareOf(job) != i {
				return fmt.Sprintf("job %q is in share %d, not in %s", job, l.ShareOf(job), s.Name)
			}
		}
	}
	if sum > l.Limit {
		return fmt.Sprintf("it guarantees %d", sum)
	}
	return ""
}

// Whatever a file holds, reading it neither panics nor hangs, and what is
// wrong is said of a line that the file has.
func FuzzParseConfig(f *testing.F) {
	f.Add(fullConfig)
	for _, pattern := range []string{"../../costs.toml", "../../testdata/config/*/*.toml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatalf("no file matches %s, error %v", pattern, err)
		}
		for _, file := range files {
			text := must.Get(os.ReadFile(file))(f)
			f.Add(string(text))
		}
	}
	const most = 8 << 10 // the parser's time grows with the square of a file's depth
	f.Fuzz(func(t *testing.T, text string) {
		text = text[:min(len(text), most)]
		root, err := parseText("costs.toml", text)
		var faults, warnings Errors
		if err == nil {
			c := readConfig("costs.toml", root)
			err, warnings = c.Err(), c.Warnings()
			for _, name := range c.Budgets() {
				spec, specErr := c.Spec(name)
				if specErr != nil {
					t.Errorf("budget %q is listed but not found: %v", name, specErr)
				}
				for _, l := range spec.Limits {
					if fault := wrongShares(l); err == nil && fault != "" {
						t.Errorf("budget %s, limit %+v: %s", name, l, fault)
					}
				}
			}
			if err == nil && len(c.Budgets()) == 0 && !strings.Contains(text, "*") {
				t.Error("a configuration without errors has no budget")
			}
		}
		if err != nil && !errors.As(err, &faults) {
			t.Fatalf("error %v, want ConfigErrors", err)
		}
		last := 1 + strings.Count(text, "\n")
		for _, fault := range slices.Concat(faults, warnings) {
			if fault.Line < 1 || fault.Line > last || fault.Message == "" {
				t.Errorf("fault %+v, want a message and a line from 1 to %d", fault, last)
			}
		}
	})
}
