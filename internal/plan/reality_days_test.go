package plan_test

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
)

// days is how many days are lived.
func days() int {
	if testing.Short() {
		return 20
	}
	return 200
}

// TestReality lives random days with known needs: what the daemon records is what the sandbox counted, and enough of the
// days are such as a plan is hard to make for.
func TestReality(t *testing.T) {
	seed := effort.Seed(t, "PLAN_SEED")
	count := days()
	sum := map[string]int{}
	outcomes := map[Outcome]int{}
	for i := range count {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			y := drawn(t, seed+uint64(i), false)
			lived := live(t, y, nil)
			check.Equal(t, lived.Requests, lived.Charges, "requests that the sandbox counted, and calls that were recorded")
			for _, p := range lived.Passes {
				outcomes[p.Outcome]++
				if p.IsCut() && p.At.IsZero() {
					t.Errorf("no refusal was seen of %s", p)
				}
			}
			if !firstCut(lived.Passes).IsZero() {
				sum["cut"]++
			}
			if y.severalLimits {
				sum["limits"]++
			}
			if y.spendsWell {
				sum["spends well"]++
			}
			sum["calls"] += int(lived.Charges)
			if t.Failed() || os.Getenv("PLAN_SHOW") != "" {
				t.Logf("seed %d, from %s to %s\n%s\n%s", seed+uint64(i), y.start, y.until, y.config, shown(lived.Passes))
			}
		})
	}
	t.Logf("%d days: %v; passes: %v", count, sum, outcomes)
	if sum["cut"]*2 < count || sum["limits"]*4 < count || sum["spends well"]*20 < count*3 {
		t.Errorf("of %d days, %d have cuts, %d several limits on a budget, and %d shares, holds or deferral: want a half, a quarter and 15 %%", count, sum["cut"], sum["limits"], sum["spends well"])
	}
}

// The same day is lived alike each time: nothing of it is left to chance.
func TestRealityRepeats(t *testing.T) {
	seed := effort.Seed(t, "PLAN_SEED")
	for i := range effort.Number(t, "PLAN_DAYS", uint64(days()/10)) {
		y := drawn(t, seed+i, i%2 == 1)
		first, second := live(t, y, nil), live(t, y, nil)
		if !reflect.DeepEqual(first, second) {
			t.Errorf("seed %d: the day is not lived alike twice: %s\n%s", seed+i, strings.Join(changes(first, second), "\n"), y.config)
		}
	}
}

func shown(passes []Pass) string {
	var b strings.Builder
	for _, p := range passes {
		b.WriteString(p.String() + "\n")
	}
	return b.String()
}

// changes are all that is not alike of two lives of a day.
func changes(first, second Lived) (list []string) {
	for i := range max(len(first.Passes), len(second.Passes)) {
		var a, b Pass
		if i < len(first.Passes) {
			a = first.Passes[i]
		}
		if i < len(second.Passes) {
			b = second.Passes[i]
		}
		if a != b {
			list = append(list, fmt.Sprintf("first:  %s\nsecond: %s", a, b))
		}
	}
	return list
}
