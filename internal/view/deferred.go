package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/screen"
)

// Deferred says which passes of a job go on once their units return, and when, or that they
// do not, since its next tick comes first.
func Deferred(on screen.Screen, v answer.Job, at time.Time) []string {
	var list []string
	for _, d := range v.Deferred {
		left := strings.Join(d.Regions, " ")
		if left == "" {
			left = "the run"
		}
		until := d.At.Time
		note := "deferred: " + left + " until " + when(on, until, at)
		if next := v.NextTick; !next.IsZero() && !next.After(until) {
			note = "deferred: " + left + " until the next tick, " + when(on, next, at) + ", which begins with what is left: the units return later, at " + when(on, until, at)
		}
		list = append(list, fmt.Sprintf("%s; part %d of the pass of %s", note, d.Part, on.Time(d.Tick.Time)))
	}
	return list
}

// when is an instant, and how far away it is.
func when(on screen.Screen, instant, at time.Time) string {
	if on.Terminal {
		return on.Time(instant)
	}
	in := "now"
	if wait := instant.Sub(at); wait > 0 {
		in = "in " + Roughly(wait)
	}
	return fmt.Sprintf("%s (%s)", on.Time(instant), in)
}
