package jobs

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/internal/check"
)

// The next pass begins with the regions that were cut, then with those that were not
// started; those that are complete come last.
func TestTheNextPassBeginsWithWhatWasCut(t *testing.T) {
	at := Instant{noon}
	done := func(region string) Run { return Run{Region: region, Outcome: Succeeded, Started: at} }
	ended := func(region string, outcome Outcome) Run {
		return Run{Region: region, Outcome: outcome, Started: at, Units: 2}
	}
	never := func(region string) Run { return Run{Region: region, Outcome: Skipped, Reason: ReasonExhausted} }
	deferred := ended("DE", Exhausted)
	deferred.Reason = ReasonDeferred
	for name, c := range map[string]struct {
		first []string
		asked []string // of the request; nil: all
		runs  []Run
		want  string
	}{
		"all complete":                 {nil, nil, []Run{done("US"), done("GB"), done("DE"), done("FR")}, "US GB DE FR"},
		"cut before the last":          {nil, nil, []Run{done("US"), done("GB"), ended("DE", Exhausted), never("FR")}, "DE FR US GB"},
		"the last was cut":             {nil, nil, []Run{done("US"), done("GB"), done("DE"), ended("FR", Exhausted)}, "FR US GB DE"},
		"the first was cut":            {nil, nil, []Run{ended("US", Exhausted), never("GB"), never("DE"), never("FR")}, "US GB DE FR"},
		"two, side by side":            {nil, nil, []Run{done("US"), ended("GB", Exhausted), done("DE"), ended("FR", Exhausted)}, "GB FR US DE"},
		"two, and one not started":     {nil, nil, []Run{ended("US", Exhausted), done("GB"), ended("DE", Drained), never("FR")}, "US DE FR GB"},
		"cut before it spent":          {nil, nil, []Run{done("US"), ended("GB", Skipped), never("DE"), never("FR")}, "GB DE FR US"},
		"lost in its midst":            {nil, nil, []Run{done("US"), ended("GB", Lost), never("DE"), never("FR")}, "GB DE FR US"},
		"a failure is no cut":          {nil, nil, []Run{done("US"), ended("GB", Failed), ended("DE", TimedOut), never("FR")}, "FR US GB DE"},
		"it goes on by itself":         {nil, nil, []Run{done("US"), done("GB"), deferred, never("FR")}, "FR US GB DE"},
		"again, although it was first": {[]string{"GB"}, nil, []Run{ended("GB", Exhausted), never("DE"), never("FR"), never("US")}, "DE FR US GB"},
		"again, behind another":        {[]string{"GB", "FR"}, nil, []Run{done("GB"), ended("FR", Exhausted), never("US"), never("DE")}, "FR US GB DE"},
		"before what was left":         {[]string{"GB", "FR", "US"}, nil, []Run{done("GB"), ended("FR", Exhausted), never("US"), never("DE")}, "FR US GB DE"},
		"some regions, on request":     {nil, []string{"FR"}, []Run{ended("FR", Exhausted)}, "US GB DE FR"},
		"cut again, on request":        {[]string{"FR"}, []string{"FR"}, []Run{ended("FR", Exhausted)}, "FR US GB DE"},
		"complete, on request":         {[]string{"FR", "DE"}, []string{"FR"}, []Run{done("FR")}, "DE US GB FR"},
	} {
		t.Run(name, func(t *testing.T) {
			j := &Job{Regions: []string{"US", "GB", "DE", "FR"}}
			s := &state{First: c.first}
			claimed := claim{}
			if c.asked != nil {
				claimed.Request = &Request{Regions: c.asked}
			}
			s.ran(&claimed, c.runs)
			check.EqualSlices(t, j.OrderFrom(s.First, s.NextRegion), strings.Fields(c.want))
		})
	}
}

// A budget that is too small for a pass is spent on the regions in turn: one that was cut at
// its second page of four comes first, before those that are complete, and resumes there.
func TestARegionThatWasCutComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := &recorded{}
		w := newWorld(t, setup{limit: 26, upstream: upstream, job: "checkpoint = \"72h\""}) // 8 regions of 4 pages
		p := w.once()
		check.EqualSlices(t, outcomes(p)[5:], []string{"BR succeeded", "AU exhausted limit", "CA skipped exhausted"}, "runs")
		w.nextIs("AU")
		w.logged("pass ended", "next_region=AU")
		after(24 * time.Hour)
		upstream.forget()
		w.once()
		check.EqualSlices(t, upstream.firsts(), []string{"AU", "CA", "US", "GB", "DE", "FR", "IN"}, "regions in their order")
	})
}

// A region that needs more than there is, and cannot resume, leaves the others their turn.
func TestARegionThatIsAlwaysCutStarvesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := &recorded{}
		w := newWorld(t, setup{limit: 3, upstream: upstream, job: "regions = [\"US\", \"GB\", \"DE\"]"}) // each has 4 pages
		for range 6 {
			w.once()
			after(24*time.Hour + time.Minute)
		}
		check.EqualSlices(t, upstream.firsts(), []string{"US", "GB", "DE"}, "regions in their order")
	})
}
