package plan_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs"
	"github.com/quotactl/quotactl/jobs/needs"
)

// days is how many days are lived.
func days() int { return effort.Of(20, 200) }

// census counts the days that were lived, by what they have, and what became of their passes.
type census struct {
	days     int
	has      map[string]int
	outcomes map[Outcome]int
}

func (c *census) add(y *day, lived Lived) {
	if c.has == nil {
		c.has, c.outcomes = map[string]int{}, map[Outcome]int{}
	}
	c.days++
	for feature, has := range y.has {
		if has {
			c.has[feature]++
		}
	}
	if !firstCut(lived.Passes).IsZero() {
		c.has["cuts"]++
	}
	if y.has["share"] || y.has["hold"] || y.has["deferral"] {
		c.has["shares, holds or deferral"]++
	}
	for _, p := range lived.Passes {
		c.outcomes[p.Outcome]++
		if p.Outcome == Complete && p.Parts > 1 {
			c.outcomes["complete after a deferral"]++
		}
	}
}

// isEnough fails unless the days are such as a plan is hard to make for. A few say nothing of that.
func (c *census) isEnough(t *testing.T) {
	t.Helper()
	t.Logf("%d days: %v; passes: %v", c.days, c.has, c.outcomes)
	if c.days < 100 {
		return
	}
	for feature, percent := range map[string]int{"cuts": 50, "several limits": 25, "shares, holds or deferral": 15} {
		if c.has[feature]*100 < c.days*percent {
			t.Errorf("of %d days %d have %s: want %d %%", c.days, c.has[feature], feature, percent)
		}
	}
}

// The same day is lived alike each time: nothing that a plan says of it is left to chance.
func TestRealityRepeats(t *testing.T) {
	seed := effort.Seed(t, "PLAN_SEED")
	for i := range effort.Number(t, "PLAN_DAYS", uint64(days()/5)) {
		y := drawn(t, seed+i, i%2 == 1)
		first, second := live(t, y, nil), live(t, y, nil)
		if list := changes(first.Passes, second.Passes); len(list) > 0 {
			t.Errorf("seed %d: the day is not lived alike twice:\n%s\n%s", seed+i, strings.Join(list, "\n"), y.config)
		}
		check.EqualSlices(t, first.Left, second.Left, "left at the resets of", seed+i)
	}
}

// Where needs are to be learned, they are at the start of the day: of every region.
func TestRealityTeaches(t *testing.T) {
	y := drawn(t, effort.Seed(t, "PLAN_SEED"), true)
	live(t, y, func(ctx context.Context, q Question) {
		_, list, err := load(q.Path)
		must.Do(t, err)
		for i, found := range must.Get(jobs.ReadNeeds(ctx, q.Store, list))(t) {
			for _, region := range found.Regions {
				units, _ := region.Units()
				about := int64(y.jobs[i].pages) * y.jobs[i].price
				if region.Source != needs.Learned || region.Runs != needs.MostRuns && region.Runs < taught/2 || units < about || units > 2*about {
					t.Errorf("job %s, region %s: %+v, want about %d units", list[i].Name, region.Region, region.Estimate, about)
				}
			}
		}
	})
}

func shown(passes []Pass) string {
	var b strings.Builder
	for _, p := range passes {
		b.WriteString(p.String() + "\n")
	}
	return b.String()
}

// changes are the passes that are not alike in two lives of a day. In how many parts a deferred pass went on is left
// out: the daemon may be woken at the very instant at which it is to look, and then looks once or twice.
func changes(first, second []Pass) (list []string) {
	for i := range max(len(first), len(second)) {
		var a, b Pass
		if i < len(first) {
			a = first[i]
		}
		if i < len(second) {
			b = second[i]
		}
		alike := func(p Pass) Pass {
			p.Parts, p.Ended = min(p.Parts, 2), time.Time{}
			return p
		}
		if alike(a) != alike(b) {
			list = append(list, fmt.Sprintf("first:  %s\nsecond: %s", a, b))
		}
	}
	return list
}
