package simulate

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
)

// greed is the most that the stranger spends in a day: 1 % of the quota.
const greed = quota / 100

// learnt is how many days it takes until an automatic headroom is lowered: three full ones
// with reports, after the one in which the first report came.
const learnt = 4

// intrusion is what a stranger spends at once.
type intrusion struct {
	at    time.Time
	units int
}

// taken is what became of it.
type taken struct {
	day                       int
	requests, units, rejected int64
}

// intrude draws what a stranger spends: on each day some amount, in bursts, at any time.
func (m *month) intrude(luck *rand.Rand) {
	for day := range m.days {
		long := m.midnight(day + 1).Sub(m.midnight(day))
		for left := luck.IntN(greed + 1); left > 0; {
			units := 1 + luck.IntN(left)
			left -= units
			m.intrusions = append(m.intrusions, intrusion{m.midnight(day).Add(between(luck, 0, long)).Truncate(time.Microsecond), units})
		}
	}
}

// intrude has a stranger spend units.
func (n *network) intrude(units int) {
	t := taken{day: n.month.day(n.clock.now())}
	for range units {
		t.requests++
		if n.strange() == http.StatusForbidden {
			t.rejected++
		} else {
			t.units++
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.taken = append(n.taken, t)
}

// strange is a request of a stranger's, for a unit. It returns the status; one that is
// dropped has none.
func (n *network) strange() (status int) {
	defer func() { _ = recover() }()
	w := httptest.NewRecorder()
	n.sandbox.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/youtube/v3/videos?chart=mostPopular&key=stranger", nil))
	return w.Code
}

// stranger is what a stranger has spent of a day by now.
func (n *network) stranger(day int) (units int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, t := range n.taken {
		if t.day == day {
			units += t.units
		}
	}
	return units
}

// TestStrangers lives months in which a stranger spends up to 1 % of the quota, with
// automatic headroom: no request is rejected, the important job is complete on every day as far
// as the stranger leaves it its guarantee, and from the fifth day on little of what the stranger
// leaves is wasted. As in TestShares, make simulate lives ten months; with small effort a month
// has five days.
func TestStrangers(t *testing.T) {
	seed := effort.Seed(t)
	days := effort.Of(learnt+1, learnt+3, 0)
	for i := range effort.Of[uint64](1, 1, 2, 10) {
		t.Run(fmt.Sprint(seed+i), func(t *testing.T) {
			t.Parallel()
			m := draw(t, intruded, seed+i, days)
			c := live(t, m, os.Getenv("SIMULATE_LOG"))
			if i > 0 {
				t.Log(m.intrudedOn(c))
			} else {
				_, _ = fmt.Fprintf(t.Output(), "%s\n\n%s\n%s\n%s\n", m, bySide(m, c), c.told, m.intrudedOn(c))
			}
			checkStrangers(t, m, c)
		})
	}
}

// intrudedOn sums up a month with a stranger.
func (m *month) intrudedOn(c *tally) string {
	text := fmt.Sprintf("seed %d: %d rejected, %s complete on %d of %d days", m.seed, c.sum().Rejected, m.important, m.completeDays(c), m.days)
	if len(c.days) > learnt {
		rest := tally{days: c.days[learnt:]}
		sum := rest.sum()
		text += fmt.Sprintf("; from the fifth day on, of what the stranger left, %.4f was spent and %.4f kept", sum.ofLeft(sum.Units, len(rest.days)), sum.ofLeft(sum.kept, len(rest.days)))
	}
	return text
}

// ofLeft is the share that units are of what a stranger left of so many days' quota.
func (d *day) ofLeft(units int64, days int) float64 {
	return float64(units) / float64(quota*int64(days)-d.stranger)
}

// checkStrangers holds a month to what is promised with automatic headroom.
func checkStrangers(t *testing.T, m month, c *tally) {
	t.Helper()
	const least = 0.985
	if rest := (tally{days: c.days[min(learnt, len(c.days)):]}); len(c.days) >= whole {
		if sum := rest.sum(); sum.ofLeft(sum.kept, len(rest.days)) < least {
			t.Errorf("from the fifth day on, of what the stranger left, %.4f was kept, want %.3f at least", sum.ofLeft(sum.kept, len(rest.days)), least)
		}
	}
	for i := range c.days {
		d, name := &c.days[i], m.midnight(i).Format(time.DateOnly)
		if d.Rejected > 0 || d.Units+d.stranger > quota {
			t.Errorf("%s: the upstream counted %d units and rejected %d requests, want none", name, d.Units, d.Rejected)
		}
		m.checkImportant(t, d, name)
		// A pass of the important job that could not begin leaves more than the others ask for in
		// what is left of the day.
		if got := d.ofLeft(d.Units, 1); i >= learnt && got < least && len(d.important) > 0 {
			t.Errorf("%s: of what the stranger left, %.4f was spent, want %.3f at least", name, got, least)
		}
		if i < learnt {
			check.Equal(t, d.headroom, quota-limit, "headroom on", name)
		}
	}
}

// bySide shows a month with a stranger by days.
func bySide(m month, c *tally) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(w, "DAY\tUNITS\tREJECTED\tSTRANGER\tHEADROOM\tKEPT\tYIELD\t")
	for i := range c.days {
		d := &c.days[i]
		_, _ = fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%.4f\t\n", m.midnight(i).Format(time.DateOnly), d.Units, d.Rejected, d.stranger, d.headroom, d.kept, d.ofLeft(d.kept, 1))
	}
	_ = w.Flush() // into memory
	return b.String()
}
