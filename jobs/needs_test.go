package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs/needs"
)

// recorded adds a record of each pass to the history of the only job, the oldest first.
func (w *world) recorded(passes ...[]Run) {
	w.t.Helper()
	for _, runs := range passes {
		w.tick++
		record := Record{Tick: InstantOf(w.tick), Kind: Scheduled, Outcome: Succeeded, Runs: runs}
		w.keep(record.json())
	}
}

// keep adds a record's text to the history of the only job.
func (w *world) keep(text json.RawMessage) {
	w.t.Helper()
	name := w.list[0].Name
	found := must.Get(w.store.Job(w.t.Context(), name))(w.t)
	swapped := must.Get(w.store.SwapJob(w.t.Context(), driver.JobSwap{
		Job: name, Version: found.Version, Text: []byte("{}"), Most: maxHistory,
		Records: []driver.JobRecord{{At: w.tick, ID: fmt.Sprint(w.tick), Text: text}},
	}))(w.t)
	must.Equal(w.t, swapped, true, "a record is kept")
}

// took is a run that took so many units of videos.list, a call for each.
func took(region string, outcome Outcome, units int64) Run {
	return Run{Region: region, Outcome: outcome, Spent: []needs.Amount{{Operation: "videos.list", Units: units, Calls: units}}}
}

// needed are the needs of the only job's runs, and of its pass.
func (w *world) needed() string {
	w.t.Helper()
	n := must.Get(ReadNeeds(w.t.Context(), w.store, w.list))(w.t)[0]
	var list []string
	for _, r := range n.Regions {
		list = append(list, r.Region+" "+shown(r.Estimate))
	}
	return strings.Join(append(list, "all "+shown(n.Pass(nil))), ", ")
}

// shown is an estimate in words.
func shown(e needs.Estimate) string {
	if e.Source == needs.Unknown {
		return "unknown"
	}
	units, _ := e.Units()
	text := fmt.Sprint(e.Source, " ", units)
	if e.Runs > 0 {
		text += fmt.Sprint("/", e.Runs)
	}
	return text
}

const twoRegions = `regions = ["US", "GB"]`

func TestNeedsInOrder(t *testing.T) {
	for _, c := range []struct {
		name, job, fetch, want string
	}{
		{"nothing is known", "", "", "US unknown, GB unknown, all unknown"},
		{"as many pages as may be", "", "max_pages = 5", "US bound 15, GB bound 15, all bound 30"},
		{"configured", "needs = { \"videos.list\" = 2 }", "max_pages = 5", "US configured 6, GB configured 6, all configured 12"},
	} {
		w := newWorld(t, setup{cost: "3", job: twoRegions + "\n" + c.job, fetch: c.fetch})
		check.Equal(t, w.needed(), c.want, c.name)
		check.Equal(t, w.list[0].Needs["videos.list"], map[bool]int64{true: 2, false: 1}[c.job != ""], c.name+": calls that must fit before a run")
		for range 4 {
			w.recorded([]Run{took("US", Succeeded, 9), took("GB", Succeeded, 12)})
		}
		check.Equal(t, w.needed(), c.want, c.name, "after four runs")
		w.recorded([]Run{took("US", Succeeded, 9), took("GB", Succeeded, 12)})
		want := "US learned 9/5, GB learned 12/5, all learned 21/5"
		if c.name == "configured" {
			want = c.want
		}
		check.Equal(t, w.needed(), want, c.name, "after five runs")
	}
}

// A fetch without next_page asks for one page.
func TestNeedsOfOnePage(t *testing.T) {
	w := newWorld(t, setup{cost: "3", job: twoRegions, more: `
[job.one]
budget = "youtube/key1"
schedule = "@daily"
[job.one.fetch]
operation = "videos.list"
url = "https://upstream.test/"
output = "one/{tick}.ndjson"`})
	w.list = w.list[1:]
	check.Equal(t, w.needed(), " bound 3, all bound 3", "one page")
}

// Each region has its own runs. If some are learned and some not, the pass is a bound if
// there is one; it is never the sum of both.
func TestNeedsOfRegionsApart(t *testing.T) {
	for fetch, want := range map[string]string{
		"":              "US learned 9/5, GB unknown, all unknown",
		"max_pages = 5": "US learned 9/5, GB bound 5, all bound 10",
	} {
		w := newWorld(t, setup{job: twoRegions, fetch: fetch})
		for range 5 {
			w.recorded([]Run{took("US", Succeeded, 9), {Region: "GB", Outcome: Skipped, Reason: ReasonExhausted}, took("FR", Succeeded, 99)})
		}
		check.Equal(t, w.needed(), want, fetch)
		n := must.Get(ReadNeeds(t.Context(), w.store, w.list))(t)[0]
		check.Equal(t, shown(n.Pass([]string{"US"})), "learned 9/5", "a pass of one region")
		check.Equal(t, shown(n.Run("FR")), "unknown", "a region that the job no longer has")
	}
}

// A run that was interrupted, or did only the rest of another, counts as at least what it
// took.
func TestNeedsOfCutRuns(t *testing.T) {
	rest := took("US", Succeeded, 2)
	rest.Resumed = true
	w := newWorld(t, setup{job: `regions = ["US"]`})
	for range 5 {
		w.recorded([]Run{took("US", Succeeded, 9)}, []Run{took("US", Exhausted, 4)}, []Run{rest}, []Run{took("US", Lost, 1)}, nil)
	}
	check.Equal(t, w.needed(), "US learned 9/5, all learned 9/5", "less than the complete runs took")
	w.recorded([]Run{took("US", TimedOut, 40)})
	check.Equal(t, w.needed(), "US learned 40/5, all learned 40/5", "more than the complete runs took")
}

// What an older version recorded, and what a job took before it was another, is not
// counted; nor is a run that does not tell its operations apart.
func TestNeedsOfOtherRecords(t *testing.T) {
	w := newWorld(t, setup{job: `regions = ["US"]`})
	for range 4 {
		w.recorded([]Run{took("US", Succeeded, 9)})
	}
	w.tick++
	w.keep(json.RawMessage(`{"tick":"2026-01-01T00:00:00.000000Z","kind":"schedule","outcome":"succeeded","reason":"","units":9,"error":"",
		"runs":[{"region":"US","outcome":"succeeded","reason":"","units":9,"calls":9,"pages":9,"output":"","error":""}]}`))
	other := took("US", Succeeded, 9)
	other.Spent[0].Operation = "search.list"
	w.recorded([]Run{other}, []Run{{Region: "US", Outcome: Succeeded, Units: 9, Calls: 9}})
	check.Equal(t, w.needed(), "US unknown, all unknown", "four runs count")
	w.recorded([]Run{took("US", Succeeded, 9)})
	check.Equal(t, w.needed(), "US learned 9/5, all learned 9/5", "five runs count")
}

// The last 30 complete runs count, also behind many records without any.
func TestNeedsOfTheLastRuns(t *testing.T) {
	w := newWorld(t, setup{job: `regions = ["US"]`})
	for range 60 {
		w.recorded([]Run{took("US", Succeeded, 90)})
	}
	for range 29 {
		w.recorded([]Run{took("US", Succeeded, 9)})
	}
	for range maxNeedsRecords - 30 {
		w.recorded(nil)
	}
	check.Equal(t, w.needed(), "US learned 9/30, all learned 9/30", "29 runs and one older")
	counting := &historyReads{State: w.store}
	must.Get(ReadNeeds(t.Context(), counting, w.list))(t)
	must.Equal(t, counting.records <= 2*maxNeedsRecords, true, counting.records, "records were read")
	w.recorded(nil)
	check.Equal(t, w.needed(), "US learned 9/29, all learned 9/29", "one record more is not read")
}

// historyReads counts what is read of histories.
type historyReads struct {
	State
	reads, records int
}

func (h *historyReads) JobHistory(ctx context.Context, q driver.JobHistoryQuery) ([]driver.JobRecord, error) {
	found, err := h.State.JobHistory(ctx, q)
	h.reads++
	h.records += len(found)
	return found, err
}

// Usually one page of 30 records of a job is read, of all regions at once, and none if its
// needs are configured.
func TestNeedsAreReadOnce(t *testing.T) {
	for job, want := range map[string]string{"": "1 30", "needs = { \"videos.list\" = 2 }": "0 0"} {
		w := newWorld(t, setup{job: twoRegions + "\n" + job})
		for range 80 {
			w.recorded([]Run{took("US", Succeeded, 9), took("GB", Succeeded, 9)})
		}
		counting := &historyReads{State: w.store}
		must.Get(ReadNeeds(t.Context(), counting, w.list))(t)
		check.Equal(t, fmt.Sprint(counting.reads, " ", counting.records), want, job)
	}
}

// The operations in the last heartbeat of a lost run are dropped if the ledger has a greater
// sum.
func TestNeedsOfLostRuns(t *testing.T) {
	j := &Job{Name: "script", Regions: []string{"US", "GB"}}
	began := InstantOf(1)
	record := Record{Runs: []Run{took("US", "", 4), took("GB", "", 4)}}
	for i := range record.Runs {
		record.Runs[i].Started, record.Runs[i].Units, record.Runs[i].Calls = began, 4, 4
	}
	j.addSpent(&record, &claim{}, j.Regions, map[string]budget.SpentRow{"US": {Units: 4, Calls: 4}, "GB": {Units: 9, Calls: 5}})
	check.Equal(t, fmt.Sprint(record.Runs[0].Units, record.Runs[0].Spent), "4 [{videos.list 4 4}]", "all was known")
	check.Equal(t, fmt.Sprint(record.Runs[1].Units, record.Runs[1].Spent == nil), "9 true", "the ledger has more")
}

// Another price makes no other job: it is the budget that has changed.
func TestPricesAreNotTheJobs(t *testing.T) {
	of := func(cost string) *Job {
		return newWorld(t, setup{cost: cost, fetch: "max_pages = 5"}).list[0]
	}
	a, b := of("1"), of("2")
	b.cfg, b.Fetch.Output = a.cfg, a.Fetch.Output
	check.Equal(t, fmt.Sprint(a.bound, b.bound), "[{videos.list 5 5}] [{videos.list 10 5}]", "at most")
	check.Equal(t, Same(a, b), true, "they are the same")
}

// A fetch job learns from its own passes, by what was charged: a page that was tried again
// was charged again.
func TestNeedsFromPasses(t *testing.T) {
	inBubble(t, "fetch", func(t *testing.T) {
		w := newWorld(t, setup{cost: "3", job: twoRegions})
		w.follow(false, 13*time.Hour) // four passes
		check.Equal(t, w.needed(), "US unknown, GB unknown, all unknown", "after four passes")
		w.follow(false, 3*time.Hour)
		records := must.Get(History(t.Context(), w.store, "trending", time.Time{}, time.Time{}, 10))(t)
		us := records[0].Runs[0]
		check.Equal(t, fmt.Sprint(us.Spent), fmt.Sprintf("[{videos.list %d %d}]", us.Units, us.Calls), "a run of", us.Region)
		check.Equal(t, us.Units, int64(3*us.Calls), "units")
		check.Equal(t, w.needed(), fmt.Sprintf("US learned %d/5, GB learned %d/5, all learned %d/5", us.Units, us.Units, 2*us.Units), "after five passes")
	})
}
