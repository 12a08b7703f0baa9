package jobs

import (
	"bytes"
	"context"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// sweep looks at all jobs for what others have left behind: ticks that nobody took,
// passes whose daemon is gone, what waits.
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
	ctx, cancel := context.WithTimeout(d.ctx, lookAgain)
	defer cancel()
	found, err := d.state.Jobs(ctx, names)
	if err != nil {
		if d.ctx.Err() == nil {
			d.log.Error("the jobs could not be looked at; trying again", "error", err)
		}
		return
	}
	now := d.now()
	for i, j := range list {
		s, err := d.known(j.Name, found[i])
		if err != nil || j.wants(s, clocks{wall: now, store: found[i].Wall, now: found[i].Now}, d.hold()) {
			d.consider(j.Name)
		}
	}
}

// document is a job's, as it was found and read.
type document struct {
	text  []byte
	state *state
}

// known is what a document says. Most say what they said a minute before, and a
// thousand are not read anew for that; nobody changes what is returned.
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

// wants reports whether a look at the job may come to something.
func (j *Job) wants(s *state, at clocks, hold time.Duration) bool {
	next := j.Next(time.UnixMicro(s.Until))
	return s.Until == 0 || len(s.Requests) > 0 || len(s.Waiting) > 0 || len(s.lapsed(at, hold)) > 0 ||
		s.Schedule != j.counts() || !next.IsZero() && !next.After(at.wall) || s.Until > at.wall.UnixMicro()
}
