package jobs

import (
	"bytes"
	"context"
	"math"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// sweep reads all jobs' documents to find what others left behind: ticks that nobody
// took, passes whose daemon died, and what waits.
func (d *daemon) sweep() {
	d.mu.Lock()
	var list []*Job
	for _, f := range d.jobs {
		list = append(list, f.job)
	}
	d.mu.Unlock()
	names := make([]string, len(list))
	for i, j := range list {
		names[i] = j.Name
	}
	ctx, cancel := context.WithTimeout(d.ctx, sweepEvery)
	defer cancel()
	found, err := d.runner.docs.state.Jobs(ctx, names)
	if err != nil {
		if d.ctx.Err() == nil {
			d.runner.log.Error("the jobs could not be read; trying again", "error", err)
		}
		return
	}
	now := d.runner.now()
	for i, j := range list {
		s, err := d.known(j.Name, found[i])
		if err == nil && len(s.Deferred) > 0 {
			d.resumeDeferred(j.Budget)
		}
		if err != nil || j.wants(s, clocks{wall: now, store: found[i].Wall, now: found[i].Now}, d.runner.docs.hold()) {
			d.scheduleLook(j.Name)
		}
	}
}

// document is a job's document, as it was read.
type document struct {
	text  []byte
	state *state
}

// known parses a document. It returns the parsed state of the last sweep if the text is
// the same, so that a thousand unchanged documents are not parsed every minute; nobody
// may change the result.
func (d *daemon) known(name string, found driver.JobDocument) (*state, error) {
	d.mu.Lock()
	before := d.found[name]
	d.mu.Unlock()
	if before.state != nil && bytes.Equal(before.text, found.Text) {
		return before.state, nil
	}
	s, err := readDocument[state](name, found)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.found[name] = document{found.Text, s}
	d.mu.Unlock()
	return s, nil
}

// wants reports whether a visit to the job may have something to do.
func (j *Job) wants(s *state, at clocks, hold time.Duration) bool {
	next := j.Next(time.UnixMicro(s.Until))
	if j.StartedBy == StartedByCron && !next.IsZero() {
		next = next.Add(j.grace(next) + time.Microsecond)
	}
	for i := range s.Deferred {
		if reason, _ := j.drops(s, at, &s.Deferred[i]); reason != "" {
			return true
		}
	}
	return s.Until == 0 || len(s.Requests) > 0 || len(s.Waiting) > 0 || len(s.lapsed(at, hold)) > 0 ||
		s.Schedule != j.counts() || !next.IsZero() && !next.After(at.wall) || s.Until > at.wall.UnixMicro()
}

// scheduleNextCatchUp schedules one look after a caught-up pass has ended: at the job of
// its budget whose tick has waited longest. A look at each job would cost as many visits
// per pass as there are jobs, and the job that has just ended would usually be first
// again.
func (d *daemon) scheduleNextCatchUp(ended *Job) {
	var list []*Job
	var names []string
	for _, j := range d.runner.list() {
		if j.Budget == ended.Budget {
			list, names = append(list, j), append(names, j.Name)
		}
	}
	ctx, cancel := context.WithTimeout(d.ctx, d.runner.docs.hold())
	defer cancel()
	found, err := d.runner.docs.state.Jobs(ctx, names)
	if err != nil {
		return // all jobs are swept within a minute
	}
	first, oldest := "", int64(math.MaxInt64)
	for i, j := range list {
		s, err := readDocument[state](j.Name, found[i])
		if err != nil {
			continue // a visit to the job logs it
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
			d.scheduleLook(j.Name)
		}
	}
	d.scheduleLook(first)
}
