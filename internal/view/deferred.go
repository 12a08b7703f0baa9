package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/quotactl/quotactl/internal/answer"
)

// Deferred says which passes of a job go on once their units return, and when, or that they
// do not, since its next tick comes first.
func Deferred(v answer.Job, at time.Time) []string {
	var list []string
	for _, d := range v.Deferred {
		left := strings.Join(d.Regions, " ")
		if left == "" {
			left = "the run"
		}
		until := d.At.Time
		note := "deferred: " + left + " until " + when(until, at)
		if next := v.NextTick; !next.IsZero() && !next.After(until) {
			note = "deferred: " + left + " until the next tick, " + when(next, at) + ", which begins with what is left: the units return later, at " + when(until, at)
		}
		list = append(list, fmt.Sprintf("%s; part %d of the pass of %s", note, d.Part, Time(d.Tick.Time)))
	}
	return list
}

// when is an instant, and how far away it is.
func when(instant, at time.Time) string {
	in := "now"
	if wait := instant.Sub(at); wait > 0 {
		in = "in " + Roughly(wait)
	}
	return fmt.Sprintf("%s (%s)", Time(instant), in)
}
