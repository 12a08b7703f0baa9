package jobs

import "context"

// onBeat has something done at each heartbeat of the pass, until the returned
// function is called: once it returns, nothing of it is under way.
func (p *pass) onBeat(do func(ctx context.Context)) (stop func()) {
	p.beat.Lock()
	defer p.beat.Unlock()
	if p.beats == nil {
		p.beats = map[int]func(context.Context){}
	}
	p.lastBeat++
	key := p.lastBeat
	p.beats[key] = do
	return func() {
		p.beat.Lock()
		defer p.beat.Unlock()
		delete(p.beats, key)
	}
}

// beatAll does what is to be done at a heartbeat, in at most half the time to the
// next.
func (p *pass) beatAll() {
	ctx, cancel := context.WithTimeout(p.hard, p.options.Heartbeat/2)
	defer cancel()
	p.beat.Lock()
	defer p.beat.Unlock()
	for _, do := range p.beats {
		do(ctx)
	}
}

// tell makes how far a run has come known to the heartbeat, by its region.
func (p *pass) tell(run Run) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.runs {
		if p.runs[i].Region == run.Region {
			p.runs[i] = run
		}
	}
}
