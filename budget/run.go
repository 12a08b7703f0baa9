package budget

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// Run is the run of a daemon's pass: the labels of its charges and the number of its pass.
// The zero value is none.
type Run struct {
	Labels Labels
	Fence  int64
}

// RunFrom reads the run for which a daemon started this program from QUOTACTL_JOB, _REGION,
// _RUN and _FENCE. The error wraps ErrInvalid.
func RunFrom(env func(name string) (string, bool)) (Run, error) {
	var r Run
	for name, label := range map[string]*string{"QUOTACTL_JOB": &r.Labels.Job, "QUOTACTL_REGION": &r.Labels.Region, "QUOTACTL_RUN": &r.Labels.Run} {
		*label, _ = env(name)
	}
	number, _ := env("QUOTACTL_FENCE")
	if number == "" {
		return r, nil
	}
	var err error
	if r.Fence, err = strconv.ParseInt(number, 10, 64); err != nil {
		return r, fmt.Errorf("%w: QUOTACTL_FENCE in the environment is not a number: the daemon sets it, leave it unchanged", ErrInvalid)
	}
	return r, nil
}

// Complete fills in what a call leaves out: its job, region and run, and if the job is the
// run's, the number of the pass. What the call says comes first.
func (r Run) Complete(call *Call) {
	for _, label := range []struct {
		own *string
		of  string
	}{{&call.Labels.Job, r.Labels.Job}, {&call.Labels.Region, r.Labels.Region}, {&call.Labels.Run, r.Labels.Run}} {
		if *label.own == "" {
			*label.own = label.of
		}
	}
	if call.Fence == 0 && call.Labels.Job != "" && call.Labels.Job == r.Labels.Job {
		call.Fence = r.Fence
	}
}

// WithRun completes the calls of the budget by [Run.Complete], except those with a Fence, as
// long as the pass lives. What is charged after its end has the job and the region alone. A
// pass that was declared dead is charged nothing: ErrFenced.
func WithRun(r Run) Option {
	return func(b *Budget) { b.run = &running{run: r} }
}

// HasRun reports whether the budget was opened with [WithRun].
func (b *Budget) HasRun() bool { return b.run != nil }

// InRun returns the same budget as if it was opened with [WithRun]. Closing it closes nothing
// that b owns.
func (b *Budget) InRun(r Run) *Budget {
	in := *b
	in.closers = nil
	WithRun(r)(&in)
	return &in
}

// running is the run of a Budget's calls.
type running struct {
	mu    sync.Mutex // guards all below
	run   Run
	asked time.Time // when the store was last asked whether the pass lives
}

// lifeLook is how long a pass is taken to live after the store has said so.
const lifeLook = 15 * time.Second

// inRun is a call as it is charged.
func (b *Budget) inRun(ctx context.Context, call Call) Call {
	if b.run == nil || call.Fence != 0 {
		return call
	}
	completed := call // so that a call outside of a run is not moved to the heap
	b.run.now(ctx, b).Complete(&completed)
	return completed
}

// now is the run, or what is left of it once its pass has ended. While the store does not
// answer, the pass is taken to live.
func (r *running) now(ctx context.Context, b *Budget) Run {
	run, asks := r.known(b)
	if !asks { // those that come meanwhile need not wait for the answer
		return run
	}
	found, err := ask(ctx, b, b.jobs.Job, run.Labels.Job)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && ctx.Err() != nil { // this call has no time to hear it
		r.asked = time.Time{}
	}
	if err != nil {
		return r.run
	}
	if passes, err := PassesOf(found); err == nil && passes.Ended(run.Fence) {
		r.run.Fence, r.run.Labels.Run = 0, ""
	}
	return r.run
}

// known is the run as it is known, and whether to ask the store now.
func (r *running) known(b *Budget) (run Run, asks bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.run.Fence == 0 || r.run.Labels.Job == "" || b.jobs == nil || !r.asked.IsZero() && time.Since(r.asked) < lifeLook {
		return r.run, false
	}
	if host, ok := b.store.(interface{ OutOfReach() (time.Time, bool) }); ok {
		if _, out := host.OutOfReach(); out {
			return r.run, false
		}
	}
	r.asked = time.Now()
	return r.run, true
}

// Passes are the numbers of a job's passes, as its document has them.
type Passes struct {
	Active []int64 // under way
	dead   []int64 // the newest that were declared dead
	newest int64
}

// PassesOf reads the passes from a job's document, which package jobs writes; none if
// there is no document.
func PassesOf(document driver.JobDocument) (Passes, error) {
	var p Passes
	if document.Text == nil {
		return p, nil
	}
	var state struct {
		Fence  int64 `json:"fence"`
		Active []struct {
			Fence int64 `json:"fence"`
		} `json:"active"`
		Dead []int64 `json:"dead"`
	}
	if err := json.Unmarshal(document.Text, &state); err != nil {
		return p, fmt.Errorf("read the state of the job: %w; was it written by another version?", err)
	}
	p.dead, p.newest = state.Dead, state.Fence
	for _, claim := range state.Active {
		p.Active = append(p.Active, claim.Fence)
	}
	return p, nil
}

// KeptDead is how many of the passes that were declared dead a document keeps.
const KeptDead = 32

// Ended reports whether it is known that a pass is over and was not declared dead.
func (p Passes) Ended(fence int64) bool {
	known := fence <= p.newest && (len(p.dead) < KeptDead || fence > slices.Min(p.dead))
	return known && !slices.Contains(p.Active, fence) && !slices.Contains(p.dead, fence)
}
