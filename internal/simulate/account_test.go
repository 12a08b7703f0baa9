package simulate

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs"
)

// account holds the history to the schedules, every tick has a record, and one
// alone, and to the files. It counts what became of the ticks, by their days, and
// the pages of the files as kept.
func (m *machine) account(t *testing.T, in jobs.State, c *tally) {
	t.Helper()
	_, list := load(t, m.config)
	views := must.Get(jobs.Look(context.Background(), in, list))(t)
	turned := 0
	b := books{t: t, network: m.network, files: readFiles(t, filepath.Join(m.folder, "data")), shared: map[time.Time][]int{}}
	for i, j := range list {
		records := must.Get(jobs.History(context.Background(), in, j.Name, time.Time{}, time.Time{}, 1_000_000))(t)
		for _, a := range views[i].Active {
			t.Errorf("job %s: its pass of %s is under way for ever", j.Name, a.Tick)
		}
		for _, w := range views[i].Waiting {
			t.Errorf("job %s: its tick %s still waits", j.Name, w.Tick)
		}
		noted := m.history.of(j.Name)
		if j.OnExhausted != jobs.DeferExhausted { // else a pass begins with all that was left
			turned += inOrder(t, j, noted)
		}
		caughtUp(t, j, noted)
		became := map[int64]jobs.Outcome{}
		for _, r := range records {
			b.read(j, r)
			for _, tick := range ticksOf(j, r) {
				if before, ok := became[tick.UnixNano()]; ok {
					t.Errorf("job %s: tick %s is recorded twice, %s and %s", j.Name, tick, before, r.Outcome)
				}
				became[tick.UnixNano()] = r.Outcome
			}
		}
		for tick := j.Next(m.month.start.Add(-begins)); tick.Before(m.month.end()); tick = j.Next(tick) {
			outcome, ok := became[tick.UnixNano()]
			if !ok {
				t.Errorf("job %s: nobody knows what became of tick %s", j.Name, tick)
				continue
			}
			delete(became, tick.UnixNano())
			c.days[m.month.day(tick)].ticks[outcome]++
		}
		for tick, outcome := range became {
			t.Errorf("job %s: %s is no tick of it, and it is %s", j.Name, time.Unix(0, tick), outcome)
		}
	}
	if turned == 0 && m.month.days > 1 && m.month.important == "" {
		t.Error("no pass began with another region than the first")
	}
	c.told = b.close()
	if m.month.important != "" {
		c.told += fmt.Sprintf("\n%d holds; %d passes that went on when their units returned", m.holds.Load(), b.wentOn)
	}
	if m.month.important != "" && !m.month.compared && m.month.days >= whole && (m.holds.Load() < int64(m.month.days) || b.wentOn == 0) {
		t.Errorf("%s: that is too little for a whole month", c.told)
	}
}

// ticksOf are the ticks that a record is of.
func ticksOf(j *jobs.Job, r jobs.Record) []time.Time {
	ticks := []time.Time{r.Tick.Time}
	if r.Until == nil {
		return ticks
	}
	for next := j.Next(r.Tick.Time); !next.After(r.Until.Time); next = j.Next(next) {
		ticks = append(ticks, next)
	}
	return ticks
}

// books are the records, read beside the files.
type books struct {
	t       *testing.T
	network *network
	files   map[string][]int // those that no record has named yet

	pages, kept   int // that the records tell of; that the named files have
	units         int64
	lost, resumed int // runs
	wentOn        int // passes that were deferred, and went on

	shared map[time.Time][]int // pages that another file may have too, by ticks
}

// read reads a record beside its runs' files. A run that goes on where another was
// cut takes that one's file over, so a record may name one that is gone.
func (b *books) read(j *jobs.Job, r jobs.Record) {
	if r.Parts > 1 {
		b.wentOn++
	}
	for _, run := range r.Runs {
		b.pages += run.Pages
		b.units += run.Units
		if run.Outcome == jobs.Lost {
			b.lost++
		}
		if run.Resumed {
			b.resumed++
		}
		pages, there := b.files[run.Output]
		if run.Output != "" && j.Checkpoint == 0 && len(pages) != run.Pages {
			b.t.Errorf("job %s: %s of tick %s has %d pages, its record says %d", j.Name, run.Output, r.Tick, len(pages), run.Pages)
		}
		if !there {
			continue
		}
		delete(b.files, run.Output)
		if run.Resumed && run.Reason == jobs.ReasonStore { // if it could store no checkpoint, the next run resumed where it did
			b.shared[r.Tick.Time] = append(b.shared[r.Tick.Time], pages...)
			continue
		}
		if twice := b.network.keep(pages, r.Tick.Time); twice > 0 {
			b.t.Errorf("job %s: %s has %d pages that another file has too", j.Name, run.Output, twice)
		}
		b.kept += len(pages)
	}
}

// close counts the files that no record names, which are those of lost runs, and
// tells how the books agree. The record of a lost run is as old as its last
// heartbeat, and what it had written after its last checkpoint is fetched again.
func (b *books) close() string {
	left := 0
	for tick, pages := range b.shared {
		b.kept += len(pages) - b.network.keep(pages, tick)
	}
	for path, pages := range b.files {
		name, _, _ := strings.Cut(filepath.Base(path), ".")
		left += len(pages) - b.network.keep(pages, must.Get(time.Parse(jobs.TickFormat, name))(b.t))
	}
	most := 20 * 8 * (b.lost + 1)
	if off := b.kept + left - b.pages; max(off, -off) > most {
		b.t.Errorf("the files have %d pages, the records tell of %d: %d runs were lost, which explains %d", b.kept+left, b.pages, b.lost, most)
	}
	return fmt.Sprintf("records: %d pages, %d units, %d runs that resumed interrupted ones; files: %d pages, and %d of lost runs", b.pages, b.units, b.resumed, b.kept, left)
}
