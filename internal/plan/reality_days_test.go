package plan_test

import (
	"context"
	"fmt"
	"slices"
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
func days() uint64 { return effort.Of[uint64](20, 25, 200) }

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

// The same day is lived alike each time: nothing that a plan says of it is left to chance. But the scheduler lets another
// goroutine go first once one has run for 10 ms of real time, as happens on a busy machine, and so may reorder what happens
// at one instant. More lives then show two that are alike, and most days need none.
func TestRealityRepeats(t *testing.T) {
	effort.Unraced(t)
	seed := effort.Seed(t)
	all, again := days()/5, uint64(0)
	for i := range all {
		y := drawn(t, seed+i, i%2 == 1)
		lives := []Lived{live(t, y, nil), live(t, y, nil)}
		list := unlike(y.start, lives)
		if len(list) > 0 {
			again++
		}
		for len(list) > 0 && len(lives) < 6 {
			t.Logf("seed %d: lived once more:\n%s", seed+i, strings.Join(list, "\n"))
			lives = append(lives, live(t, y, nil))
			list = unlike(y.start, lives)
		}
		if len(list) > 0 {
			t.Errorf("seed %d: of %d lives of the day no two are alike:\n%s\n%s", seed+i, len(lives), strings.Join(list, "\n"), y.config)
		}
	}
	if again > all/2 {
		t.Errorf("%d of %d days were not lived alike twice in a row", again, all)
	}
}

// unlike is empty if the last life is like one before; otherwise it says how it differs from the first.
func unlike(start time.Time, lives []Lived) (list []string) {
	last := len(lives) - 1
	for _, other := range slices.Backward(lives[:last]) {
		list = append(changes(start, other.Passes, lives[last].Passes), leftChanges(other, lives[last])...)
		if len(list) == 0 {
			return nil
		}
	}
	return list
}

// Where needs are to be learned, they are at the start of the day: of every region.
func TestRealityTeaches(t *testing.T) {
	y := drawn(t, effort.Seed(t), true)
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

// changes are the passes that are not alike in two lives of a day. Left open is how often the daemon looks: woken by the end of
// a pass at the very instant at which it is to look, it looks once or twice, and each look takes it a moment. So left out is in
// how many parts a deferred pass went on, and a refusal may be up to a second apart. Passes of before the start are caught
// up one after another, where these moments add up: up to a minute.
func changes(start time.Time, first, second []Pass) (list []string) {
	for i := range max(len(first), len(second)) {
		var a, b Pass
		if i < len(first) {
			a = first[i]
		}
		if i < len(second) {
			b = second[i]
		}
		within := time.Second
		if !a.Tick.After(start) {
			within = time.Minute
		}
		alike := func(p Pass) Pass {
			p.Parts, p.Ended, p.At = min(p.Parts, 2), time.Time{}, time.Time{}
			return p
		}
		if alike(a) != alike(b) || a.At.IsZero() != b.At.IsZero() || a.At.Sub(b.At).Abs() >= within {
			list = append(list, fmt.Sprintf("first:  %s\nsecond: %s", a, b))
		}
	}
	return list
}

// leftChanges are the resets before which not the same was left in two lives of a day. What moved within a second of the window's
// start or end may have moved before it in one life and after it in the other.
func leftChanges(first, second Lived) (list []string) {
	near := func(lived Lived, budgetName string, at time.Time) (sum int64) {
		for _, m := range lived.Moves {
			if m.Budget == budgetName && m.At.Sub(at).Abs() < time.Second {
				sum += m.Most
			}
		}
		return sum
	}
	began := map[string]time.Time{} // the window of each limit
	for i := range max(len(first.Left), len(second.Left)) {
		var a, b Left
		if i < len(first.Left) {
			a = first.Left[i]
		}
		if i < len(second.Left) {
			b = second.Left[i]
		}
		differ := a.Units - b.Units
		name := a.Budget + " " + a.Limit
		var mayDiffer int64
		if differ != 0 {
			for _, edge := range []time.Time{began[name], a.At} {
				mayDiffer += max(near(first, a.Budget, edge), near(second, a.Budget, edge))
			}
		}
		began[name] = a.At
		if b.Units = a.Units; a != b || max(differ, -differ) > mayDiffer {
			list = append(list, fmt.Sprintf("%s before %s: %d more in the first, want at most %d", name, a.At.UTC().Format(time.DateTime), differ, mayDiffer))
		}
	}
	return list
}

// A life is like any of those before it.
func TestUnlike(t *testing.T) {
	of := func(units int64) Lived { return Lived{Passes: []Pass{{Job: "x0", Units: units}}} }
	for name, one := range map[string]struct {
		lives []Lived
		want  int
	}{
		"twice alike":             {[]Lived{of(1), of(1)}, 0},
		"twice unlike":            {[]Lived{of(1), of(2)}, 1},
		"the third as the first":  {[]Lived{of(1), of(2), of(1)}, 0},
		"the third as the second": {[]Lived{of(1), of(2), of(2)}, 0},
		"three unlike":            {[]Lived{of(1), of(2), of(3)}, 1},
	} {
		check.Equal(t, len(unlike(time.Time{}, one.lives)), one.want, name)
	}
}

// What is left differs by no more than what moved within a second of either end of the window.
func TestLeftChanges(t *testing.T) {
	reset := time.Date(2026, 10, 4, 13, 0, 0, 0, time.UTC)
	lived := func(left, next int64, moved time.Duration) Lived {
		return Lived{
			Left:  []Left{{"b", "l", reset, left}, {"b", "l", reset.Add(time.Hour), next}, {"b", "l", reset.Add(2 * time.Hour), 5}},
			Moves: []Move{{"b", reset.Add(moved), 90}, {"other", reset, 1000}},
		}
	}
	first := lived(100, 50, -time.Millisecond)
	for name, one := range map[string]struct {
		second Lived
		want   int
	}{
		"nothing":            {first, 0},
		"after the reset":    {lived(190, -40, time.Millisecond), 0},
		"more than moved":    {lived(191, -40, time.Millisecond), 1},
		"less than moved":    {lived(9, 141, -time.Millisecond), 2},
		"a reset that is no": {Lived{Left: first.Left[:2], Moves: first.Moves}, 1},
	} {
		check.Equal(t, len(leftChanges(first, one.second)), one.want, name)
	}
	early := lived(100, 50, -time.Second)
	check.Equal(t, len(leftChanges(early, lived(190, 50, time.Second))), 1, "moved a second away")
	last := first
	last.Left = append(last.Left[:2:2], Left{"b", "l", reset.Add(2 * time.Hour), 6})
	check.Equal(t, len(leftChanges(first, last)), 1, "another window")
}

// Two lives differ by a pass, its outcome, units or reason, the limit that refused it, and a second; not by how often a
// daemon looked.
func TestChanges(t *testing.T) {
	at := time.Date(2026, 10, 4, 13, 5, 30, 692_130_000, time.UTC)
	pass := Pass{Job: "x0", Tick: at.Add(-time.Hour), Outcome: Cut, At: at, Limit: "l0", Units: 5, Reason: jobs.ReasonLimit, Parts: 2, Ended: at}
	with := func(change func(*Pass)) Pass {
		other := pass
		change(&other)
		return other
	}
	for name, one := range map[string]struct {
		other  Pass
		differ bool
	}{
		"nothing":         {pass, false},
		"another look":    {with(func(p *Pass) { p.At, p.Parts, p.Ended = at.Add(11*time.Millisecond), 3, at.Add(time.Minute) }), false},
		"a second":        {with(func(p *Pass) { p.At = at.Add(-time.Second) }), true},
		"never refused":   {with(func(p *Pass) { p.At = time.Time{} }), true},
		"another limit":   {with(func(p *Pass) { p.Limit = "l1" }), true},
		"other units":     {with(func(p *Pass) { p.Units = 6 }), true},
		"another outcome": {with(func(p *Pass) { p.Outcome = Complete }), true},
		"another reason":  {with(func(p *Pass) { p.Reason = jobs.ReasonHold }), true},
		"one part":        {with(func(p *Pass) { p.Parts = 0 }), true},
		"another tick":    {with(func(p *Pass) { p.Tick = at }), true},
	} {
		check.Equal(t, len(changes(at.Add(-24*time.Hour), []Pass{pass}, []Pass{one.other})) > 0, one.differ, name)
	}
	check.Equal(t, len(changes(at, []Pass{pass}, nil)), 1, "a pass that is not lived again")
	for by, differ := range map[time.Duration]int{2 * time.Second: 0, time.Minute: 1} {
		later := with(func(p *Pass) { p.At = at.Add(by) })
		check.Equal(t, len(changes(at, []Pass{pass}, []Pass{later})), differ, "one that is caught up, later by", by)
	}
}
