package jobs

import (
	"context"
	"math"
)

// nextCatchUp looks at the job whose turn it is when a pass that was caught up has
// ended: of those of its budget the one whose tick has waited longest. Were all looked
// at, each pass would cost as many looks as there are jobs, and the job that has just
// ended would mostly be first again.
func (d *daemon) nextCatchUp(ended *Job) {
	var list []*Job
	var names []string
	for _, j := range d.list() {
		if j.Budget == ended.Budget {
			list, names = append(list, j), append(names, j.Name)
		}
	}
	ctx, cancel := context.WithTimeout(d.ctx, d.hold())
	defer cancel()
	found, err := d.state.Jobs(ctx, names)
	if err != nil {
		return // all jobs are looked at within a minute
	}
	first, oldest := "", int64(math.MaxInt64)
	for i, j := range list {
		s, err := readDocument[state](j.Name, found[i])
		if err != nil {
			continue // who looks at the job tells it
		}
		other := len(s.Requests) > 0
		for _, w := range s.Waiting {
			switch {
			case w.Kind != CaughtUp:
				other = true
			case w.Tick < oldest && s.Pause == nil && j.free(s):
				first, oldest = j.Name, w.Tick
			}
		}
		if other && j.Name == ended.Name {
			d.consider(j.Name)
		}
	}
	d.consider(first)
}
