package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/quotactl/quotactl/internal/answer"
)

// Deferred says which passes of a job go on once their units return, and when.
func Deferred(v answer.Job, at time.Time) []string {
	var list []string
	for _, d := range v.Deferred {
		left := strings.Join(d.Regions, " ")
		if left == "" {
			left = "the run"
		}
		in := "now"
		if wait := d.At.Sub(at); wait > 0 {
			in = "in " + Roughly(wait)
		}
		note := fmt.Sprintf("deferred: %s until %s (%s), part %d of the pass of %s", left, Time(d.At.Time), in, d.Part, Time(d.Tick.Time))
		if next := v.NextTick; !next.IsZero() && !next.After(d.At.Time) {
			note += fmt.Sprintf("; the job's next tick, at %s, comes before that, and begins with what is left", Time(next))
		}
		list = append(list, note)
	}
	return list
}
