package jobs

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs/needs"
)

const tables = `[upstream.youtube.costs]
"videos.list" = 1
"search.list" = 100
[upstream.youtube.limit.daily]
limit = 9_500
window = "24h"
[upstream.youtube.limit.calls]
limit = 50
counts = "calls"
operations = ["search.list"]
window = "24h"
[upstream.youtube.credential.key1]
secret_env = "YOUTUBE_API_KEY"
[upstream.youtube.refusal.spent]
means = "exhausted"
status = 403
lock = "1h"
[upstream.open.costs]
"a.list" = 1
[upstream.open.limit.a]
operations = ["a.list"]
limit = 10
window = "1h"
[upstream.open.credential.none]
`

// read parses a configuration with these job tables below the usual others.
func read(t *testing.T, jobTables string) (*config.Config, []*Job) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "costs.toml")
	must.Do(t, os.WriteFile(path, []byte(tables+jobTables), 0o600))
	cfg := must.Get(config.Parse(path))(t)
	return cfg, Load(cfg)
}

func TestLoadReadsAllKeys(t *testing.T) {
	cfg, list := read(t, `
[job.small]
budget = "youtube/key1"
schedule = "@daily"
[job.small.fetch]
operation = "videos.list"
url = "https://upstream.test/v3/videos"
output = "{tick}.ndjson"
[job.large]
budget = "youtube/key1"
schedule = "0 4 * * *"
timezone = "Europe/Berlin"
regions = ["US", "GB"]
stagger = "8m"
on_store_error = "closed"
timeout = "10m"
grace = "20s"
floor = 100
parallel = 2
max_wait = "1m"
catch_up = "all"
catch_up_limit = 5
max_late = "6h"
overlap = "queue"
on_exhausted = "defer"
retries = 3
retry_wait = "2s"
history = "48h"
checkpoint = "12h"
needs = { "search.list" = 2, "videos.list" = 4 }
operation = "search.list"
[job.large.fetch]
url = "https://upstream.test/v3/search?r={region}"
secret = { header = "Authorization", prefix = "Bearer " }
next_page = { param = "page", from = "meta.next" }
max_pages = 9
items = "data.items"
output = "/data/{job}/{region}/{tick}.ndjson"
[job.script]
budget = "open/none"
schedule = "@hourly"
command = ["fetch", "{region}"]
`)
	must.Do(t, cfg.Err())
	check.Equal(t, len(cfg.Warnings()), 0, "warnings", cfg.Warnings())
	must.Equal(t, len(list), 3, "jobs")
	small, large, script := list[0], list[1], list[2]
	if s := small.Schedule; s.String() != "@daily" || s.Zone() != time.UTC {
		t.Errorf("schedule %s in %s", s, s.Zone())
	}
	if s := large.Schedule; s.Zone().String() != "Europe/Berlin" {
		t.Errorf("zone %s", s.Zone())
	}
	for _, j := range list {
		check.Equal(t, j.cfg, cfg, "job", j.Name, "is of")
		j.cfg = nil
	}
	small.Schedule, large.Schedule, script.Schedule = nil, nil, nil
	key1 := config.Credential{Label: "key1", SecretEnv: "YOUTUBE_API_KEY"}
	for i, want := range []*Job{
		{
			Name: "small", Budget: "youtube/key1", Regions: []string{""},
			Timeout: 5 * time.Minute, Grace: 10 * time.Second, MaxWait: 30 * time.Second, StartWait: 30 * time.Second,
			CatchUp: CatchUpNone, CatchUpLimit: 10, MaxLate: 24 * time.Hour, Overlap: Skip, OnExhausted: StopExhausted, RetryWait: 5 * time.Second, History: 168 * time.Hour,
			Needs:      budget.Needs{"videos.list": 1},
			Fetch:      &Fetch{Operation: "videos.list", URL: "https://upstream.test/v3/videos", Output: cfg.Path("{tick}.ndjson")},
			bound:      []needs.Amount{{Operation: "videos.list", Units: 1, Calls: 1}},
			credential: key1, upstream: "youtube",
		},
		{
			Name: "large", Budget: "youtube/key1", Regions: []string{"US", "GB"}, Stagger: 8 * time.Minute,
			Timeout: 10 * time.Minute, Grace: 20 * time.Second, MaxWait: time.Minute, StartWait: time.Minute, Floor: 100, Parallel: 2,
			CatchUp: CatchUpAll, CatchUpLimit: 5, MaxLate: 6 * time.Hour, Overlap: Queue, OnExhausted: DeferExhausted, Retries: 3, RetryWait: 2 * time.Second, History: 48 * time.Hour, Checkpoint: 12 * time.Hour,
			OnStoreError: budget.Closed, Needs: budget.Needs{"search.list": 2, "videos.list": 4},
			Fetch: &Fetch{
				Operation: "search.list", URL: "https://upstream.test/v3/search?r={region}",
				Secret: config.Secret{Header: "Authorization", Prefix: "Bearer "}, NextParam: "page", NextFrom: "meta.next",
				MaxPages: 9, Items: "data.items", Output: "/data/{job}/{region}/{tick}.ndjson",
			},
			stated:     []needs.Amount{{Operation: "search.list", Units: 200, Calls: 2}, {Operation: "videos.list", Units: 4, Calls: 4}},
			bound:      []needs.Amount{{Operation: "search.list", Units: 900, Calls: 9}},
			credential: key1, upstream: "youtube",
		},
		{
			Name: "script", Budget: "open/none", Regions: []string{""},
			Timeout: 5 * time.Minute, Grace: 10 * time.Second, MaxWait: 30 * time.Second, StartWait: 30 * time.Second,
			CatchUp: CatchUpNone, CatchUpLimit: 10, MaxLate: 24 * time.Hour, Overlap: Skip, OnExhausted: StopExhausted, RetryWait: 5 * time.Second, History: 168 * time.Hour,
			Needs: budget.Needs{"": 1}, Command: []string{"fetch", "{region}"},
			credential: config.Credential{Label: "none"}, upstream: "open",
		},
	} {
		if !reflect.DeepEqual(list[i], want) {
			t.Errorf("job %s:\n got %+v %+v\nwant %+v %+v", want.Name, list[i], list[i].Fetch, want, want.Fetch)
		}
	}
	if _, err := New(list, Options{Budgets: map[string]*budget.Budget{"youtube/key1": {}}}); err == nil || !strings.Contains(err.Error(), "script") {
		t.Errorf("New took a job without its budget: %v", err)
	}
	both := Options{Budgets: map[string]*budget.Budget{"youtube/key1": {}, "open/none": {}}, Sandbox: &url.URL{}}
	if _, err := New(list, both); err == nil || !strings.Contains(err.Error(), "command job") {
		t.Errorf("New took a command job beside a sandbox: %v", err)
	}
}

// good is a job to which one line is done at a time.
var good = map[string]string{
	"budget": `"youtube/key1"`, "schedule": `"0 */3 * * *"`, "regions": `["US", "GB"]`,
	"fetch.operation": `"videos.list"`, "fetch.url": `"https://upstream.test/v3?r={region}"`, "fetch.output": `"{region}/{tick}"`,
}

// broken writes the good job with lines changed, given as key and value; the
// value "" takes the key out. It returns the line of the first key, the job's
// where that is taken out.
func broken(changes ...string) (text string, line int) {
	at := map[string]string{}
	for key, value := range good {
		at[key] = value
	}
	for i := 0; i < len(changes); i += 2 {
		at[changes[i]] = changes[i+1]
	}
	lines := []string{"[job.j]"}
	for _, table := range []string{"", "fetch."} {
		first := len(lines)
		for _, key := range []string{
			"budget", "schedule", "timezone", "regions", "stagger", "on_store_error", "timeout", "grace", "floor", "parallel",
			"max_wait", "operation", "needs", "command", "fetch.operation", "fetch.url", "fetch.secret", "fetch.next_page",
			"fetch.max_pages", "fetch.items", "fetch.output", "hours",
		} {
			name, inFetch := strings.CutPrefix(key, "fetch.")
			if inFetch != (table != "") || at[key] == "" {
				continue
			}
			if table != "" && len(lines) == first {
				lines = append(lines, "[job.j.fetch]")
			}
			lines = append(lines, name+" = "+at[key])
			if key == changes[0] {
				line = len(lines)
			}
		}
	}
	if line == 0 {
		line = 1
		if strings.HasPrefix(changes[0], "fetch.") {
			line = len(lines)
			for !strings.HasPrefix(lines[line-1], "[job.j.fetch]") {
				line--
			}
		}
	}
	return strings.Join(lines, "\n") + "\n", line + strings.Count(tables, "\n")
}

func TestLoadFindsFaults(t *testing.T) {
	for _, test := range []struct {
		tells   string
		changes []string
	}{
		{"write budget = \"upstream/credential\"; configured: youtube/key1, open/none", []string{"budget", ""}},
		{"configured: youtube/key1, open/none", []string{"budget", `"youtube/key2"`}},
		{"write a string in quotes", []string{"budget", `1`}},
		{"write schedule = \"0 */3 * * *\"", []string{"schedule", ""}},
		{"never ticks", []string{"schedule", `"0 0 30 2 *"`}},
		{"timezone", []string{"schedule", `"TZ=UTC 0 0 * * *"`}},
		{"America/Los_Angeles", []string{"timezone", `"Pacific"`}},
		{"regions is empty", []string{"regions", `[]`}},
		{"region \"U S\"", []string{"regions", `["U S"]`}},
		{"is listed twice", []string{"regions", `["US", "GB", "US"]`}},
		{"stagger = \"8\"", []string{"stagger", `"8"`}},
		{"use 0s to", []string{"stagger", `"-1s"`}},
		{"closed", []string{"on_store_error", `"never"`}},
		{"use 1s to", []string{"timeout", `"0s"`}},
		{"grace", []string{"grace", `"2h"`}},
		{"floor", []string{"floor", `-1`}},
		{"could never start: its needs and its floor of 9500 exceed limit", []string{"floor", `9_500`}},
		{"use 1 to 1000", []string{"parallel", `0`}},
		{"max_wait", []string{"max_wait", `"25h"`}},
		{"operation \"x.list\" has no price", []string{"operation", `"x.list"`}},
		{"has no price", []string{"fetch.operation", `"video.list"`}},
		{"keep one of them", []string{"fetch.operation", `"videos.list"`, "operation", `"search.list"`}},
		{"has no operation", []string{"fetch.operation", ""}},
		{"could never start: its needs exceed limit", []string{"needs", `{ "search.list" = 51 }`}},
		{"could never start", []string{"needs", `{ "videos.list" = 1_000_000_000_000_000 }`}},
		{"needs is empty", []string{"needs", `{}`}},
		{"has no price", []string{"needs", `{ "x" = 1 }`}},
		{"use 1 to", []string{"needs", `{ "videos.list" = 0 }`}},
		{"keep one", []string{"command", `["./x"]`}},
		{"has no url", []string{"fetch.url", ""}},
		{"names no host", []string{"fetch.url", `"upstream.test/{region}"`}},
		{"names no host", []string{"fetch.url", `"https:///{region}"`}},
		{"begins with \"ftp://\": only http:// and https://", []string{"fetch.url", `"ftp://upstream.test/{region}"`}},
		{"cannot be read", []string{"fetch.url", `"https://upstream.test:x/{region}"`}},
		{"contains {country}", []string{"fetch.url", `"https://upstream.test/{region}/{country}"`}},
		{"contains a user", []string{"fetch.url", `"https://me:pw@upstream.test/{region}"`}},
		{"'#'", []string{"fetch.url", `"https://upstream.test/{region}#top"`}},
		{"secret goes nowhere", []string{"fetch.secret", `{}`}},
		{"keep one", []string{"fetch.secret", `{ query = "key", header = "X-Key" }`}},
		{"not a valid header name", []string{"fetch.secret", `{ header = "X Key" }`}},
		{"prefix belongs to a header", []string{"fetch.secret", `{ query = "key", prefix = "Bearer " }`}},
		{"query is empty", []string{"fetch.secret", `{ query = "" }`}},
		{"not the secret", []string{"fetch.secret", `"key"`}},
		{"next_page is not a table", []string{"fetch.next_page", `"pageToken"`}},
		{"has no secret to send", []string{"fetch.secret", `{ query = "key" }`, "budget", `"open/none"`, "fetch.operation", `"a.list"`}},
		{"contains \"r\", which carries the secret", []string{"fetch.url", good["fetch.url"], "fetch.secret", `{ query = "r" }`}},
		{"lacks param or from", []string{"fetch.next_page", `{ param = "page" }`}},
		{"contains \"r\", which next_page sends", []string{"fetch.url", good["fetch.url"], "fetch.next_page", `{ param = "r", from = "next" }`}},
		{"already carries the secret", []string{"fetch.next_page", `{ param = "key", from = "next" }`, "fetch.secret", `{ query = "key" }`}},
		{"is not a path", []string{"fetch.next_page", `{ param = "page", from = "a..b" }`}},
		{"is not a path", []string{"fetch.items", `"items."`}},
		{"use 1 to", []string{"fetch.max_pages", `0`}},
		{"has no output", []string{"fetch.output", ""}},
		{"has no {tick}", []string{"fetch.output", `"{region}.ndjson"`}},
		{"has no {region}", []string{"fetch.output", `"{tick}.ndjson"`}},
		{"contains {date}", []string{"fetch.output", `"{region}/{tick}/{date}"`}},
		{"names no file", []string{"fetch.output", `"{region}/{tick}/"`}},
		{"names no file", []string{"fetch.output", `"{region}/{tick}.partial"`}},
		{"unknown key \"hours\"", []string{"hours", `1`}},
	} {
		t.Run(strings.Join(test.changes, " "), func(t *testing.T) {
			text, line := broken(test.changes...)
			cfg, list := read(t, text)
			var faults config.Errors
			if !errors.As(cfg.Err(), &faults) || len(list) != 0 {
				t.Fatalf("no fault found: %d jobs", len(list))
			}
			if len(faults) != 1 || !strings.Contains(faults[0].Message, test.tells) {
				t.Errorf("faults:\n%v\nwant one that tells %q", faults, test.tells)
			}
			if faults[0].Line != line {
				t.Errorf("line %d, want %d of\n%s", faults[0].Line, line, text)
			}
		})
	}
}

func TestTwoJobsMayNotShareAnOutput(t *testing.T) {
	first, _ := broken("stagger", `"1m"`)
	second := strings.ReplaceAll(first, "[job.j", "[job.k")
	cfg, list := read(t, first+second)
	if err := cfg.Err(); err == nil || !strings.Contains(err.Error(), "is where job j writes") || len(list) != 1 {
		t.Errorf("%d jobs, %v", len(list), err)
	}
	apart := strings.NewReplacer("{region}/{tick}", "{job}/{region}/{tick}")
	if cfg, list := read(t, apart.Replace(first+second)); cfg.Err() != nil || len(list) != 2 {
		t.Errorf("with {job}: %v", cfg.Err())
	}
}

func TestLoadFindsAllFaultsAtOnce(t *testing.T) {
	text, _ := broken("budget", `"x/y"`, "schedule", `"*/60 * * * *"`, "regions", `["", "a", "a"]`, "fetch.output", `"x"`, "fetch.url", `"x"`)
	cfg, list := read(t, text+"[job.idle]\nbudget = \"youtube/key1\"\nschedule = \"@daily\"\n[job.good]\nbudget = \"open/none\"\nschedule = \"@daily\"\ncommand = [\"./x\"]\n")
	var faults config.Errors
	if !errors.As(cfg.Err(), &faults) || len(faults) != 8 {
		t.Errorf("%d faults, want 8:\n%v", len(faults), faults)
	}
	if len(list) != 1 || list[0].Name != "good" {
		t.Errorf("jobs without faults: %d", len(list))
	}
}

func TestLoadWarns(t *testing.T) {
	for _, test := range []struct {
		tells   string
		changes []string
	}{
		{"3h0m0s between two ticks", []string{"stagger", `"3h"`}},
		{"either is enough", []string{"schedule", `"0 0 13 * 5"`}},
		{"counts from midnight UTC", []string{"timezone", `"Europe/Berlin"`, "schedule", `"@every 6h"`}},
		{"every region fetches the same", []string{"fetch.url", `"https://upstream.test/"`}},
		{"without [store] outage_allowance", []string{"on_store_error", `"open"`}},
		{"max_pages without next_page", []string{"fetch.max_pages", `4`}},
		{"upstream open has no refusal rule", []string{"budget", `"open/none"`, "fetch.operation", `"a.list"`, "fetch.secret", ""}},
	} {
		text, line := broken(test.changes...)
		cfg, _ := read(t, text)
		warnings := cfg.Warnings()
		if cfg.Err() != nil || len(warnings) != 1 || !strings.Contains(warnings[0].Message, test.tells) || warnings[0].Line != line {
			t.Errorf("%v: %v and warnings %v; want one of line %d that tells %q", test.changes, cfg.Err(), warnings, line, test.tells)
		}
	}
}

// A long job and region still make a label that a charge takes.
func TestRunLabelsFit(t *testing.T) {
	long := strings.Repeat("x", 63)
	for job, region := range map[string]string{"trending": "US", long: long, "j": ""} {
		label := (&Job{Name: job}).partLabel(midnight, 1, region)
		if len(label) > maxRunLabel || !strings.HasPrefix(label, job[:1]) || !strings.HasSuffix(label, region) || !strings.Contains(label, "/20000101T000000Z") {
			t.Errorf("label %q", label)
		}
	}
}
