package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
)

// state is a job's document in a [State]. A daemon reads it, changes it, and swaps it for
// the version that it read; of several daemons only one succeeds.
type state struct {
	// Until is the instant (µs) up to which the schedule's ticks are accounted for: each
	// has a record or a claim, or waits. 0: no daemon has seen the job.
	Until int64 `json:"until,omitempty"`
	// Schedule is the schedule and zone that Until refers to.
	Schedule string `json:"schedule,omitempty"`
	// LastManual is the newest tick (µs) of a pass that is not on schedule.
	LastManual int64 `json:"last_manual,omitempty"`
	// NextRegion is the region that the next pass begins with; empty: the first.
	NextRegion string `json:"next_region,omitempty"`
	// Last is the record of the last pass that ended, without its logs.
	Last json.RawMessage `json:"last,omitempty"`
	// LastSuccess is when (µs) the last successful pass of all regions ended.
	LastSuccess int64 `json:"last_success,omitempty"`
	// Fence is the number of the newest claim.
	Fence int64 `json:"fence,omitempty"`
	// Active are the passes under way.
	Active []claim `json:"active,omitempty"`
	// Waiting are ticks that are still to be run and that nobody has claimed, in their
	// order.
	Waiting  []waiting `json:"waiting,omitempty"`
	Requests []Request `json:"requests,omitempty"`
	// Deferred are the passes that go on once their units return.
	Deferred []deferred `json:"deferred,omitempty"`
	// First are regions that were cut, or to which a deferred pass did not come: the next pass
	// of all regions begins with them, and goes on with NextRegion.
	First []string `json:"first,omitempty"`
	Pause *Pause   `json:"pause,omitempty"`
	// Recent are the newest ticks (µs) that began; a clock that is set back reaches them
	// again.
	Recent []int64 `json:"recent,omitempty"`
	// Dead are the fences of the newest passes that were declared dead.
	Dead []int64 `json:"dead,omitempty"`
	// Steps are the newest steps that stored records: a step whose answer was lost finds
	// itself here if it was taken.
	Steps []string `json:"steps,omitempty"`

	// Taken is, for a job that cron starts, the newest tick (µs) by region that has a run or can have
	// none any more, Missed the ticks without a run since the last one that had one.
	Taken  map[string]int64 `json:"taken,omitempty"`
	Missed *missedTicks     `json:"missed,omitempty"`
	// Complete is when (µs) the last successful run of a region ended that others started.
	Complete map[string]int64 `json:"complete,omitempty"`
}

// claim is the claim of a pass under way.
type claim struct {
	Holder  string   `json:"holder"`
	Tick    int64    `json:"tick"` // µs
	Kind    Kind     `json:"kind"`
	Budget  string   `json:"budget"` // that the pass spends
	Fence   int64    `json:"fence"`
	Since   int64    `json:"since"`             // µs, by its daemon's wall clock
	Until   int64    `json:"until"`             // µs, by the store's clock; it must be renewed before
	Request *Request `json:"request,omitempty"` // of a pass that a person asked for
	// Progress is the record so far.
	Progress json.RawMessage `json:"progress,omitempty"`
	Cancel   *Cancel         `json:"cancel,omitempty"` // a person cancelled it; nil: nobody did

	// Part is 2 or more for a pass that was deferred and goes on; it then amends the record
	// with the ID Record, which is Before so far, and has the Regions that are left.
	Part    int             `json:"part,omitempty"`
	Record  string          `json:"record,omitempty"`
	Before  json.RawMessage `json:"before,omitempty"`
	Regions []string        `json:"regions,omitempty"`
	// Pauses are those of the deferred pass.
	Pauses int `json:"pauses,omitempty"`
	// First are the regions that it begins with.
	First []string `json:"first,omitempty"`
	// Outside: others started it, for the one region in Regions, or for all if that is empty.
	Outside bool `json:"outside,omitempty"`

	// outside runs the command, if Outside and this process has the claim.
	outside func(context.Context, OutsideRun) OutsideEnd
	// begun, unless nil, is called once the pass has spent something, or is over.
	begun func()
	// silent is how long ago it had expired when it was read.
	silent time.Duration
}

// waiting is a tick that is still to be run.
type waiting struct {
	Tick int64 `json:"tick"` // µs
	// Kind is Queued or CaughtUp, or Scheduled for one that a daemon gave back.
	Kind Kind `json:"kind"`
}

// regions are the regions of the pass, or of its part; nil: all.
func (c *claim) regions() []string {
	if c.Part > 1 || c.Outside {
		return c.Regions
	}
	if c.Request == nil || len(c.Request.Regions) == 0 {
		return nil
	}
	return c.Request.Regions
}

// whole reports whether the pass is one of all regions.
func (c *claim) whole() bool {
	return !c.Outside && (c.Request == nil || len(c.Request.Regions) == 0)
}

// spends makes it known that the pass has spent something, or is over.
func (c *claim) spends() {
	if c.begun != nil {
		c.begun()
	}
}

// request is the ID of the pass's request, and note says who asked and why; both empty
// without one.
func (c *claim) request() string {
	if c.Request == nil {
		return ""
	}
	return c.Request.ID
}

func (c *claim) note() string {
	if c.Request == nil {
		return ""
	}
	return c.Request.text()
}

// Pause means that a job's ticks are skipped.
type Pause struct {
	Note string  `json:"note"`
	By   string  `json:"by"`
	At   Instant `json:"at"`
}

// Request asks for a pass, off schedule, from any machine.
type Request struct {
	ID      string   `json:"id"`
	By      string   `json:"by"`
	At      Instant  `json:"at"`
	Note    string   `json:"note,omitempty"`
	Regions []string `json:"regions,omitempty"` // empty: all
}

// How many entries Recent and Steps keep.
const (
	keptRecent = 128
	keptSteps  = 32
)

// clocks is the current time by each clock.
type clocks struct {
	wall  time.Time // this daemon's wall clock, which decides about ticks
	store int64     // the store's wall clock, µs, to check it
	now   int64     // the store's clock, µs, which decides about claims
}

// check returns an error if this machine's clock is ahead of the store's.
func (at clocks) check() error {
	if ahead := at.wall.UnixMicro() - at.store; ahead > driver.ClockTolerance {
		return fmt.Errorf("%w: this machine's clock is %s ahead of the store's; correct the wrong one", budget.ErrClock, time.Duration(ahead)*time.Microsecond)
	}
	return nil
}

// past reports whether something that is held for hold at a time has expired at until
// (µs, the store's clock). An end further off than possible counts as expired, too: it
// was set by a clock that was ahead and has been set back since. A live holder renews it
// soon.
func (at clocks) past(until int64, hold time.Duration) bool {
	return until <= at.now || until > at.now+2*hold.Microseconds()
}

// claimOf is the claim of a holder; nil if it has none.
func (s *state) claimOf(holder string) *claim {
	if i := s.place(holder); i >= 0 {
		return &s.Active[i]
	}
	return nil
}

func (s *state) place(holder string) int {
	return slices.IndexFunc(s.Active, func(c claim) bool { return c.Holder == holder })
}

// drop removes a holder's claim.
func (s *state) drop(holder string) {
	s.Active = slices.Delete(s.Active, s.place(holder), s.place(holder)+1)
}

// remember appends a value and keeps the newest most.
func remember[T comparable](list []T, value T, most int) []T {
	list = append(list, value)
	return list[max(0, len(list)-most):]
}

// State keeps what jobs need between their passes, and what several daemons agree on.
// Every store is a State.
type State = driver.JobStore

// documents reads and changes the jobs' documents of a [State].
type documents struct {
	state     State
	now       func() time.Time // the wall clock
	heartbeat time.Duration    // how often this process renews what it holds
	watch     watch
	log       *slog.Logger
}

// hold is how long a claim or a slot is valid without being renewed.
func (d *documents) hold() time.Duration { return 4 * d.heartbeat }

// change reads a job's state, has do change it, and swaps it; if another process changed
// it meanwhile, it starts over. It returns do's errors, except errStays, and then changes
// nothing.
func (d *documents) change(ctx context.Context, job *Job, do func(s *state, at clocks) (edit, error)) error {
	err := changeDocument(ctx, d.state, job.Name, d.now, job.History, do)
	if err != nil { // then others cannot renew their claims either
		d.watch.forget(job.Name)
	}
	return err
}

// edit is what a change stores besides the document.
type edit struct {
	records []driver.JobRecord
	values  map[string][]byte
	// same: the document stays unchanged.
	same bool
}

// errStays leaves a state unchanged.
var errStays = errors.New("the state stays unchanged")

// changeDocument is change for any document; history is how long its records are kept.
func changeDocument[T any](ctx context.Context, in State, name string, now func() time.Time, history time.Duration, do func(t *T, at clocks) (edit, error)) error {
	for {
		found, err := in.Job(ctx, name)
		if err != nil {
			return err
		}
		t, err := readDocument[T](name, found)
		if err != nil {
			return err
		}
		at := clocks{wall: now(), store: found.Wall, now: found.Now}
		e, err := do(t, at)
		switch {
		case errors.Is(err, errStays):
			return nil
		case err != nil:
			return err
		}
		swap := driver.JobSwap{Job: name, Version: found.Version, Values: e.values, Records: e.records}
		if !e.same {
			if swap.Text, err = json.Marshal(t); err != nil {
				return fmt.Errorf("write the state of job %s: %w", name, err)
			}
		}
		if len(e.records) > 0 {
			// The earlier of the two clocks counts: one that is ahead must not remove new records.
			at := min(at.wall.UnixMicro(), at.store)
			swap.Forget, swap.Most = at-history.Microseconds(), maxHistory
			for i := range swap.Records { // the record of a tick older than the history is kept as long as others
				if record := &swap.Records[i]; record.At < swap.Forget {
					record.At = at
				}
			}
		}
		if swapped, err := in.SwapJob(ctx, swap); err != nil || swapped {
			return err
		}
	}
}

// readDocument parses a document; the zero value if it does not exist.
func readDocument[T any](name string, found driver.JobDocument) (*T, error) {
	t := new(T)
	if found.Text == nil {
		return t, nil
	}
	if err := json.Unmarshal(found.Text, t); err != nil {
		return nil, fmt.Errorf("read the state of job %s: %w; was it written by another version?", name, err)
	}
	return t, nil
}

// boundedState is a State that bounds how many changes are under way at once. When a
// thousand jobs tick in one second, their changes wait here and not in the store, where
// they would time out.
type boundedState struct {
	State
	changing chan struct{} // its capacity is the bound
}

// SwapJob implements State.
func (b *boundedState) SwapJob(ctx context.Context, swap driver.JobSwap) (bool, error) {
	select {
	case b.changing <- struct{}{}:
		defer func() { <-b.changing }()
	case <-ctx.Done():
		return false, fmt.Errorf("change job %s, while others are changed: %w: %w", swap.Job, budget.ErrUnavailable, context.Cause(ctx))
	}
	return b.State.SwapJob(ctx, swap)
}
