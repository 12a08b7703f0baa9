package needs_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs/needs"
)

// whole are complete runs that took so many units of one operation, a call for each two.
func whole(units ...int64) (list []needs.Sample) {
	for _, n := range units {
		list = append(list, needs.Sample{Complete: true, Took: []needs.Amount{{Operation: "a", Units: n, Calls: n / 2}}})
	}
	return list
}

// cut are runs that were interrupted after so many units.
func cut(units ...int64) []needs.Sample {
	list := whole(units...)
	for i := range list {
		list[i].Complete = false
	}
	return list
}

func TestLearnsTheNearestRank(t *testing.T) {
	many := make([]int64, 40)
	for i := range many {
		many[i] = int64(2 * (i + 1)) // 2, 4, …, the newest first
	}
	for _, c := range []struct {
		name    string
		samples []needs.Sample
		units   int64 // -1: unknown
		runs    int
	}{
		{"no run", nil, -1, 0},
		{"four runs", whole(8, 8, 8, 8), -1, 0},
		{"five runs", whole(2, 10, 4, 8, 6), 10, 5},
		{"nine runs", whole(2, 4, 6, 8, 10, 12, 14, 16, 18), 18, 9},
		{"ten runs: one of them may take more", whole(20, 4, 6, 8, 10, 12, 14, 16, 18, 2), 18, 10},
		{"twenty runs: two of them", whole(many[:20]...), 36, 20},
		{"thirty runs: three of them", whole(many[:30]...), 54, 30},
		{"the last thirty only", whole(many...), 54, 30},
		{"four whole and many cut", slices.Concat(whole(8, 8, 8, 8), cut(8, 8, 8, 8)), -1, 0},
		{"cut below the quantile", slices.Concat(cut(1, 1, 1, 1, 1, 1), whole(2, 10, 4, 8, 6)), 10, 5},
		{"cut at the quantile", slices.Concat(cut(10, 10, 10, 10, 10, 10, 10, 10, 10), whole(20, 4, 6, 8, 10, 10, 10, 10, 10, 2)), 10, 10},
		{"cut above the quantile", slices.Concat(cut(30), whole(2, 10, 4, 8, 6)), 30, 5},
		{"one of eleven above the quantile", slices.Concat(cut(30), whole(20, 4, 6, 8, 10, 12, 14, 16, 18, 2)), 20, 10},
		{"cut before the last thirty", slices.Concat(whole(many[:30]...), cut(900)), 54, 30},
		{"cut among the last thirty", slices.Concat(whole(many[:29]...), cut(900), whole(60)), 56, 30},
		{"nothing taken", whole(0, 0, 0, 0, 0), 0, 5},
	} {
		got := needs.Learn(c.samples)
		units, known := got.Units()
		check.Equal(t, known, c.units >= 0, c.name)
		check.Equal(t, got.Runs, c.runs, c.name, "runs")
		if known {
			check.Equal(t, units, c.units, c.name, "units")
			check.Equal(t, got.Source, needs.Learned, c.name)
		}
	}
}

// Each operation has its own quantile, units and calls apart; a run without an operation
// took none of it.
func TestLearnsByOperation(t *testing.T) {
	var list []needs.Sample
	for i := range int64(10) {
		s := needs.Sample{Complete: true, Took: []needs.Amount{{Operation: "search", Units: 100 * i, Calls: i % 2}}}
		if i >= 8 {
			s.Took = append(s.Took, needs.Amount{Operation: "list", Units: i, Calls: 2})
		}
		if i == 9 {
			s.Took = append(s.Took, needs.Amount{Operation: "rare", Units: 5, Calls: 1})
		}
		list = append(list, s)
	}
	got := needs.Learn(list)
	check.Equal(t, fmt.Sprint(got.Amounts), "[{list 8 2} {search 800 1}]", "amounts")
	got = needs.Learn(append(list, needs.Sample{Took: []needs.Amount{{Operation: "list", Units: 50}, {Operation: "search", Units: 1}}}))
	check.Equal(t, fmt.Sprint(got.Amounts), "[{list 9 2} {search 800 1}]", "amounts, one more cut")
}

// pages are complete runs of so many calls at a price.
func pages(price int64, calls ...int64) (list []needs.Sample) {
	for _, n := range calls {
		list = append(list, needs.Sample{Complete: true, Took: []needs.Amount{{Operation: "a", Units: price * n, Calls: n}}})
	}
	return list
}

func TestLearnsTheMean(t *testing.T) {
	many := slices.Repeat([]int64{2, 4}, needs.MostRuns/2)
	for _, c := range []struct {
		name    string
		samples []needs.Sample
		want    string
	}{
		{"all alike", pages(100, 7, 7, 7, 7, 7), "[{a 700 7}]"},
		{"nearly a whole number of calls", pages(100, 5, 5, 5, 6, 5, 5), "[{a 500 5}]"},
		{"in between", pages(100, 1, 2, 1, 1, 2, 1, 2, 1, 1, 2), "[{a 140 1}]"},
		{"in between, nearer to the larger", pages(100, 2, 2, 2, 1, 2, 2, 1, 2, 2, 1, 2, 2, 1, 2, 2), "[{a 173 2}]"},
		{"a few take much more", pages(1, 10, 10, 10, 10, 10, 10, 10, 40, 40, 40), "[{a 19 19}]"},
		{"never above nine of ten", pages(1, 10, 10, 10, 10, 10, 10, 10, 10, 10, 400), "[{a 10 10}]"},
		{"of a few runs, as many as of the others", pages(100, 0, 0, 0, 10, 10), "[{a 400 4}]"},
		{"of one run in twenty", pages(100, append(slices.Repeat([]int64{0}, 19), 10)...), "[]"},
		{"units that no call explains", whole(1, 1, 1, 1, 1), "[{a 1 0}]"},
		{"the last thirty only", pages(1, append(many, 900, 900)...), "[{a 3 3}]"},
		{"none that was cut", slices.Concat(cut(90, 90), pages(1, 4, 4, 4, 4, 4)), "[{a 4 4}]"},
		{"nothing taken", pages(1, 0, 0, 0, 0, 0), "[]"},
		{"too few", pages(1, 4, 4, 4, 4), "[]"},
	} {
		check.Equal(t, fmt.Sprint(needs.Learn(c.samples).Mean), c.want, c.name)
	}
}

// Whatever the runs took: no cut run lowers the estimate, and at least 0.9 of the complete
// runs took no more.
func TestCutRunsNeverLower(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Int64Range(0, 50), 5, needs.MostRuns).Draw(t, "whole")
		least := rapid.SliceOfN(rapid.Int64Range(0, 100), 0, 40).Draw(t, "cut")
		alone, _ := needs.Learn(whole(values...)).Units()
		both, _ := needs.Learn(slices.Concat(cut(least...), whole(values...))).Units()
		if both < alone {
			t.Fatalf("%d with the cut runs, %d without", both, alone)
		}
		within := 0
		for _, v := range values {
			if v <= alone {
				within++
			}
		}
		if 10*within < 9*len(values) {
			t.Fatalf("%d of %d runs took at most %d", within, len(values), alone)
		}
		if mean, _ := needs.Learn(whole(values...)).Middle().Units(); mean > alone {
			t.Fatalf("%d in the mean, above %d", mean, alone)
		}
	})
}

// A run that goes on takes what is left of its estimate, and of each operation a call at
// least.
func TestLess(t *testing.T) {
	whole := needs.Estimate{Source: needs.Configured, Amounts: []needs.Amount{{Operation: "a", Units: 301, Calls: 3}, {Operation: "b", Units: 2, Calls: 2}, {Operation: "c"}, {Operation: "d", Calls: 4}}}
	for _, c := range []struct {
		took []needs.Amount
		want string
	}{
		{nil, "[{a 301 3} {b 2 2} {c 0 0} {d 0 4}]"},
		{[]needs.Amount{{Operation: "a", Units: 100, Calls: 1}, {Operation: "other", Units: 7, Calls: 1}}, "[{a 201 2} {b 2 2} {c 0 0} {d 0 4}]"},
		{[]needs.Amount{{Operation: "a", Units: 300, Calls: 3}, {Operation: "b", Units: 1, Calls: 1}}, "[{a 101 1} {b 1 1} {c 0 0} {d 0 4}]"},
		{[]needs.Amount{{Operation: "a", Units: 900, Calls: 9}, {Operation: "c", Units: 1, Calls: 1}, {Operation: "d", Calls: 1}}, "[{a 101 1} {b 2 2} {c 0 0} {d 0 3}]"},
	} {
		got := whole.Less(c.took)
		check.Equal(t, fmt.Sprint(got.Amounts), c.want, "after", c.took)
		check.Equal(t, got.Source, needs.Configured, "source")
	}
	check.Equal(t, whole.Amounts[0].Units, 301, "the estimate stays")
}

func TestSums(t *testing.T) {
	learned := needs.Estimate{Source: needs.Learned, Runs: 7, Amounts: []needs.Amount{{Operation: "b", Units: 2, Calls: 1}, {Operation: "c", Units: 1, Calls: 1}}}
	other := needs.Estimate{Source: needs.Learned, Runs: 5, Amounts: []needs.Amount{{Operation: "a", Units: 3, Calls: 3}, {Operation: "b", Units: 4, Calls: 2}}}
	sum := needs.Sum([]needs.Estimate{learned, other})
	check.Equal(t, fmt.Sprint(sum), "{learned [{a 3 3} {b 6 3} {c 1 1}] 5 [] []}", "the sum")
	check.Equal(t, needs.Sum(nil).Source, needs.Unknown, "the sum of none")
	check.Equal(t, needs.Sum([]needs.Estimate{learned, {Source: needs.Bound}}).Source, needs.Unknown, "the sum over two sources")
	check.Equal(t, fmt.Sprint(learned.Amounts), "[{b 2 1} {c 1 1}]", "a summand stays")
	if units, known := (needs.Estimate{}).Units(); units != 0 || known {
		t.Errorf("the zero estimate is known: %d units", units)
	}
	most := needs.Estimate{Source: needs.Configured, Amounts: []needs.Amount{{Units: math.MaxInt64}, {Operation: "a", Units: 1}}}
	units, known := most.Units()
	must.Equal(t, known, true)
	check.Equal(t, units, math.MaxInt64, "too many units")
}
