package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs"
)

// past is what happened before the test: the same each time, for one instant.
type past struct {
	now     time.Time
	charges map[string][]charged // by budget
	passes  map[string][]jobs.Record
	dice    *rand.Rand
	pace    time.Duration // between the calls of a pass, about
	// schedules are those of the jobs, each with its zone, if a daemon is to have looked at them.
	schedules map[string]string
}

func newPast(now time.Time) *past {
	return &past{now: now.UTC(), charges: map[string][]charged{}, passes: map[string][]jobs.Record{}, dice: rand.New(rand.NewPCG(1, 2)), pace: 800 * time.Millisecond}
}

// ticks are the multiples of a span in the day before now, the oldest first.
func (p *past) ticks(every, after time.Duration) (list []time.Time) {
	for at := p.now.Add(-24*time.Hour + 5*time.Minute).Truncate(every).Add(every + after); at.Before(p.now.Add(-10 * time.Minute)); at = at.Add(every) {
		list = append(list, at)
	}
	return list
}

// pass adds a pass of a job whose regions each made so many calls, a second apart.
func (p *past) pass(budget, job string, tick time.Time, regions []string, operation string, units int64, calls int) *jobs.Record {
	record := jobs.Record{Tick: jobs.Instant{Time: tick}, Kind: jobs.Scheduled, Outcome: jobs.Succeeded, Host: "in process 4711 on web1"}
	at := tick
	for _, region := range regions {
		run := jobs.Run{Region: region, Outcome: jobs.Succeeded, Started: jobs.Instant{Time: at}, Units: units * int64(calls), Calls: calls, Pages: calls, Attempts: 1}
		name := job + "/" + tick.Format(jobs.TickFormat)
		if region != "" {
			name += "/" + region
			run.Output = "data/" + name + ".ndjson"
		}
		for range calls {
			at = at.Add(p.pace/2 + time.Duration(p.dice.Int64N(int64(p.pace))))
			p.charges[budget] = append(p.charges[budget], charged{at, operation, units, job, region, name})
		}
		run.Ended = jobs.Instant{Time: at}
		record.Units += run.Units
		record.Runs = append(record.Runs, run)
	}
	record.Started, record.Ended = jobs.Instant{Time: tick}, jobs.Instant{Time: at}
	p.passes[job] = append(p.passes[job], record)
	return &p.passes[job][len(p.passes[job])-1]
}

// day fills the day before now as the jobs of testdata/costs.toml would.
func (p *past) day() {
	const youtube, github = "youtube/key1", "github/bot"
	for _, tick := range p.ticks(3*time.Hour, 0) {
		p.pass(youtube, "trending", tick, []string{"US", "GB", "DE", "FR", "IN", "BR", "AU", "CA"}, "videos.list", 1, 4)
	}
	for i, tick := range p.ticks(4*time.Hour, 30*time.Minute) {
		record := p.pass(youtube, "trends", tick, []string{"US", "GB"}[:1+i%2], "search.list", 100, 2)
		record.Outcome, record.Reason = jobs.Exhausted, jobs.ReasonLimit
		record.Runs = append(record.Runs,
			jobs.Run{Region: "DE", Outcome: jobs.Skipped, Reason: jobs.ReasonExhausted})
		record.Runs[len(record.Runs)-2].Outcome, record.Runs[len(record.Runs)-2].Reason = jobs.Exhausted, jobs.ReasonLimit
		record.Runs[len(record.Runs)-2].Error = "page 3: exhausted: limit search has 0 left"
	}
	for _, tick := range p.ticks(time.Hour, 15*time.Minute) {
		p.pass(youtube, "charts.music", tick, []string{""}, "channels.list", 1, 8+p.dice.IntN(4))
	}
	for _, tick := range p.ticks(24*time.Hour, 10*time.Hour) {
		p.pass(youtube, "nightly", tick, []string{""}, "videos.list", 1, 1740+p.dice.IntN(60))
	}
	for _, tick := range p.ticks(30*time.Minute, 0) {
		p.pass(github, "mirror", tick, []string{"north", "south"}, "rest.get", 1, 25+p.dice.IntN(15))
	}
	for hour := range 20 { // people, and programs that are no jobs
		at := p.now.Add(-time.Duration(hour)*time.Hour - 7*time.Minute)
		p.charges[youtube] = append(p.charges[youtube], charged{At: at, Operation: "videos.list", Units: int64(40 + p.dice.IntN(200))})
		p.charges[github] = append(p.charges[github], charged{At: at, Operation: "graphql", Units: 10, Job: "dashboard"})
	}
	for _, list := range p.charges {
		slices.SortFunc(list, func(a, b charged) int { return a.At.Compare(b.At) })
	}
}

// document is the document of a job that is idle.
func (p *past) document(t testing.TB, job string) []byte {
	t.Helper()
	records := p.passes[job]
	var succeeded int64
	for _, r := range records {
		if r.Outcome == jobs.Succeeded {
			succeeded = max(succeeded, r.Ended.UnixMicro())
		}
	}
	return must.Get(json.Marshal(map[string]any{
		"until": p.now.UnixMicro(), "schedule": p.schedules[job], "last": records[len(records)-1], "last_success": succeeded,
	}))(t)
}

// record writes the passes to a store.
func (p *past) record(ctx context.Context, t testing.TB, store driver.JobStore) {
	t.Helper()
	for job, records := range p.passes {
		document := must.Get(store.Job(ctx, job))(t)
		swap := driver.JobSwap{Job: job, Version: document.Version}
		if document.Text == nil {
			swap.Text = p.document(t, job)
		}
		for n, record := range records {
			swap.Records = append(swap.Records, driver.JobRecord{At: record.Tick.UnixMicro(), ID: fmt.Sprintf("past-%d", n), Text: must.Get(json.Marshal(record))(t)})
		}
		if !must.Get(store.SwapJob(ctx, swap))(t) {
			t.Fatal("the passes of", job, "were not recorded")
		}
	}
}
