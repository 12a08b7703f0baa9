package simulate

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/jobs"
)

// TestShares lives months with shares, holds and deferral, in which the jobs want half as
// much again as the upstream grants: the important job is complete on every day, and
// little of what the headroom leaves is wasted. The first of them is printed by days,
// beside the same month with floors alone and with a crontab. The tests with small effort
// live a month of two days, and make simulate lives ten months, from the seed on.
func TestShares(t *testing.T) {
	seed := effort.Seed(t)
	days := effort.Of(2, 5, 0)
	for i := range effort.Of[uint64](1, 1, 2, 10) {
		t.Run(fmt.Sprint(seed+i), func(t *testing.T) {
			t.Parallel()
			m := draw(t, sharing, seed+i, days)
			began := time.Now()
			ours := live(t, m, os.Getenv("SIMULATE_LOG"))
			took := time.Since(began)
			if i > 0 {
				t.Logf("%s; ticks: %s", m.shared(ours), ours.sum().outcomes())
			} else {
				floors := draw(t, floored, seed, days)
				_, _ = fmt.Fprintf(t.Output(), "%s\n\n%s\n%s\n%s; ticks: %s\n%d days in %.0f s\n", m,
					compare(m, column{"shares", ours}, column{"floors", live(t, floors, "")}, column{"crontab", alone(t, m)}),
					ours.told, m.shared(ours), ours.sum().outcomes(), m.days, took.Seconds())
			}
			checkShares(t, m, ours)
		})
	}
}

// shared sums up a month with shares.
func (m *month) shared(c *tally) string {
	return fmt.Sprintf("seed %d: %s complete on %d of %d days, %d rejected, yield of what the headroom leaves %.4f",
		m.seed, m.important, m.completeDays(c), m.days, c.sum().Rejected, c.left())
}

// completeDays is on how many days the important job is complete.
func (m *month) completeDays(c *tally) (days int) {
	for i := range c.days {
		if m.complete(&c.days[i]) {
			days++
		}
	}
	return days
}

// left is the share of what the headroom leaves of the month that was spent on kept pages.
func (c *tally) left() float64 { return float64(c.sum().kept) / float64(limit*len(c.days)) }

// complete reports whether files have all pages that the important job asks for in a day.
func (m *month) complete(d *day) bool { return len(d.important) == m.wanted }

// checkShares holds a month to what is promised with shares.
func checkShares(t *testing.T, m month, c *tally) {
	t.Helper()
	const least = 0.99
	if got := c.left(); got < least && len(c.days) >= whole {
		t.Errorf("yield of what the headroom leaves: %.4f, want %.2f at least", got, least)
	}
	for i := range c.days {
		d, name := &c.days[i], m.midnight(i).Format(time.DateOnly)
		most := int64(limit)
		if m.away(m.midnight(i), m.midnight(i+1)) {
			most += allowance
		}
		if d.Rejected > 0 || d.Units > most {
			t.Errorf("%s: the upstream counted %d units and rejected %d requests, want at most %d and none", name, d.Units, d.Rejected, most)
		}
		m.checkImportant(t, d, name)
	}
}

// column is a month in the comparison.
type column struct {
	name string
	*tally
}

// compare shows months of the same days beside each other.
func compare(m month, columns ...column) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(w, "DAY\t%s\n", strings.Repeat("|\tUNITS\tREJECTED\tIMPORTANT\tSEARCHES\tKEPT\tYIELD\t", len(columns)))
	for i := range m.days {
		_, _ = fmt.Fprintf(w, "%s\t", m.midnight(i).Format(time.DateOnly))
		for _, c := range columns {
			d := &c.days[i]
			important := "complete"
			if !m.complete(d) {
				important = fmt.Sprintf("%d pages", len(d.important))
			}
			_, _ = fmt.Fprintf(w, "|\t%d\t%d\t%s\t%d\t%d\t%.4f\t", d.Units, d.Rejected, important, d.searches, d.kept, d.yield(1))
		}
		_, _ = fmt.Fprintln(w)
	}
	_, _ = fmt.Fprint(w, "month\t")
	names := []string{""}
	for _, c := range columns {
		sum := c.sum()
		_, _ = fmt.Fprintf(w, "|\t%d\t%d\t%d of %d\t%d\t%d\t%.4f\t", sum.Units, sum.Rejected, m.completeDays(c.tally), m.days, sum.searches, sum.kept, c.yield())
		names = append(names, c.name)
	}
	_, _ = fmt.Fprintln(w)
	_ = w.Flush() // into memory
	heading, _, _ := strings.Cut(b.String(), "\n")
	return groups(heading, names...) + b.String()
}

// The jobs of a month with shares want half as much again as the upstream grants.
func TestDemand(t *testing.T) {
	for _, s := range []setting{sharing, floored} {
		_, list := load(t, writeConfig(t, t.TempDir(), s))
		day := time.Date(2026, time.November, 17, 0, 0, 0, 0, pacific)
		var units int64
		for _, j := range list {
			for tick := j.Next(day.Add(-time.Second)); tick.Before(day.AddDate(0, 0, 1)); tick = j.Next(tick) {
				units += passUnits(j)
			}
		}
		check.Equal(t, units, quota*3/2, "units a day")
	}
	text := string(floored.config)
	for _, word := range []string{"share.", "hold ", string(jobs.DeferExhausted)} {
		if strings.Contains(text, word) {
			t.Errorf("with floors alone the configuration has %q:\n%s", word, text)
		}
	}
	check.Equal(t, strings.Count(text, "\nfloor = "), 3, "jobs with a floor")
}
