package simulate

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs"
	"github.com/quotactl/quotactl/jobs/sandbox"
)

// tally is a month by days.
type tally struct {
	days []day
	told string // how the records and the files agree
}

// day is what became of a Pacific day's quota.
type day struct {
	sandbox.Usage
	answered int64 // requests that were answered with a page
	kept     int64 // units of pages that files have
	searches int   // of them
	// important are the pages of the important job that files of the day's own pass have, by
	// their places.
	important map[string]bool
	guarantee
	ticks map[jobs.Outcome]int

	stranger int64 // units that somebody else took; they are not among Units
	headroom int64 // at the day's end

	// Units that no page can stand for, by their kinds.
	failed, unheard, astride, unanswered int64
	least                                int64 // that must be kept
}

// yield is the share of so many days' quota that was spent on kept pages.
func (d *day) yield(days int) float64 { return float64(d.kept) / float64(quota*days) }

func newTally(m month) *tally {
	c := &tally{days: make([]day, m.days)}
	for i := range c.days {
		c.days[i].ticks = map[jobs.Outcome]int{}
		c.days[i].important = map[string]bool{}
	}
	return c
}

// count adds what the upstream counted, and the pages that are kept by now. What
// arrived after the month's last midnight, of runs that were under way then, is of
// no day of it.
func (c *tally) count(n *network) {
	for i := range c.days {
		c.days[i].Usage = n.usage(i)
		c.days[i].guarantee = *n.guaranteeOf(i)
	}
	for _, s := range n.taken {
		d := &c.days[s.day]
		d.stranger += s.units
		d.Units -= s.units
		d.Requests -= s.requests
		d.Rejected -= s.rejected
	}
	for _, l := range n.lost {
		if l.day < 0 || l.day >= len(c.days) {
			continue
		}
		d := &c.days[l.day]
		*map[lossKind]*int64{failedRequest: &d.failed, unheardAnswer: &d.unheard, astrideOfDays: &d.astride, keptAnswer: &d.unanswered}[l.kind] += l.units
	}
	for _, p := range n.pages {
		if p.day >= len(c.days) {
			continue
		}
		c.days[p.day].answered++
		if p.kept {
			c.days[p.day].kept += p.units
			if n.month.important != "" && p.asked == n.month.important && p.of == p.day {
				c.days[p.day].important[p.place] = true
			}
			if p.path == searches {
				c.days[p.day].searches++
			}
		}
	}
}

// sum is the whole month.
func (c *tally) sum() day {
	sum := day{ticks: map[jobs.Outcome]int{}}
	for _, d := range c.days {
		sum.Requests += d.Requests
		sum.Units += d.Units
		sum.Rejected += d.Rejected
		sum.Failed += d.Failed
		sum.Dropped += d.Dropped
		sum.kept += d.kept
		sum.stranger += d.stranger
		sum.searches += d.searches
		for outcome, n := range d.ticks {
			sum.ticks[outcome] += n
		}
	}
	return sum
}

// yield is the share of the month's quota that was spent on kept pages.
func (c *tally) yield() float64 {
	sum := c.sum()
	return sum.yield(len(c.days))
}

// readFiles reads all files below a folder, whole or partial: the pages that each
// has, by its path.
func readFiles(t *testing.T, folder string) map[string][]int {
	t.Helper()
	files := map[string][]int{}
	must.Do(t, filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if files[path], err = pagesOf(text); err != nil {
			t.Errorf("%s: %v", strings.TrimPrefix(path, folder), err)
		}
		return nil
	}))
	return files
}
