package jobs

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
)

// state is a job's document in a [State]. It is read, changed, and swapped for the
// version that was read: of several daemons one is first.
type state struct {
	// Until is the instant (µs) up to which the schedule's ticks are accounted for:
	// each has a record, or a claim, or waits. 0: the job was never seen.
	Until int64 `json:"until,omitempty"`
	// Schedule is the schedule and zone that Until counts by.
	Schedule string `json:"schedule,omitempty"`
	// LastManual is the newest tick (µs) of a pass that is not on schedule.
	LastManual int64 `json:"last_manual,omitempty"`
	// NextRegion is the one that the next pass begins with; empty: the first.
	NextRegion string `json:"next_region,omitempty"`
	// Last is the record of the last pass that ended, without its logs.
	Last json.RawMessage `json:"last,omitempty"`
	// LastSuccess is when (µs) the last pass of all regions that succeeded ended.
	LastSuccess int64 `json:"last_success,omitempty"`
	// Fence is the newest number of a claim.
	Fence int64 `json:"fence,omitempty"`
	// Active are the passes under way.
	Active []claim `json:"active,omitempty"`
	// Waiting are ticks that are to be run and that nobody has claimed yet, in the
	// order of their turn.
	Waiting  []waiting `json:"waiting,omitempty"`
	Requests []Request `json:"requests,omitempty"`
	Pause    *Pause    `json:"pause,omitempty"`
	// Recent are the newest ticks (µs) that began: a clock that is set back comes by
	// them once more.
	Recent []int64 `json:"recent,omitempty"`
	// Reaped are the newest claims that were taken for dead.
	Reaped []string `json:"reaped,omitempty"`
}

// claim is a pass under way.
type claim struct {
	Holder  string   `json:"holder"`
	Tick    int64    `json:"tick"` // µs
	Kind    Kind     `json:"kind"`
	Budget  string   `json:"budget"` // that it spends
	Fence   int64    `json:"fence"`
	Since   int64    `json:"since"`             // µs, by its daemon's wall clock
	Until   int64    `json:"until"`             // µs, by the store's clock: renewed before that
	Request *Request `json:"request,omitempty"` // of a pass that a person asked for
	// Progress is the record so far.
	Progress json.RawMessage `json:"progress,omitempty"`
	Cancel   *Cancel         `json:"cancel,omitempty"` // a person has ended it; nil: nobody has

	// silent is for how long it had been past its end when that was looked at.
	silent time.Duration
}

// waiting is a tick that is to be run.
type waiting struct {
	Tick int64 `json:"tick"` // µs
	// Kind is Queued or CaughtUp, or Scheduled for one that a daemon has given back.
	Kind Kind `json:"kind"`
}

// regions are those that a pass is of; nil: all.
func (c *claim) regions() []string {
	if c.Request == nil || len(c.Request.Regions) == 0 {
		return nil
	}
	return c.Request.Regions
}

// request is the ID of the request that a pass is for, and note what that says;
// both empty for none.
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

// Pause says that a job's ticks are skipped.
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

// The bounds of what a state remembers.
const (
	keptRecent = 128
	keptReaped = 32
)

// clocks is what the time is.
type clocks struct {
	wall  time.Time // this daemon's wall clock, which ticks go by
	store int64     // the store's wall clock, µs, its witness
	now   int64     // the store's clock, µs, which claims are counted by
}

// errClocks is a machine whose clock is ahead of the store's.
func (at clocks) check() error {
	if ahead := at.wall.UnixMicro() - at.store; ahead > driver.ClockTolerance {
		return fmt.Errorf("%w: this machine's clock is %s ahead of the store's; set the wrong one right", budget.ErrClock, time.Duration(ahead)*time.Microsecond)
	}
	return nil
}

// past reports whether something that is held for so long at a time is past its end
// (µs, the store's clock): also where that is further off than it can be, by a clock
// that was ahead and has been set back since. Who lives renews it soon.
func (at clocks) past(until int64, hold time.Duration) bool {
	return until <= at.now || until > at.now+2*hold.Microseconds()
}

// claimOf is the claim of a holder; nil when it has none.
func (s *state) claimOf(holder string) *claim {
	if i := s.place(holder); i >= 0 {
		return &s.Active[i]
	}
	return nil
}

func (s *state) place(holder string) int {
	return slices.IndexFunc(s.Active, func(c claim) bool { return c.Holder == holder })
}

// drop takes a holder's claim out.
func (s *state) drop(holder string) {
	s.Active = slices.Delete(s.Active, s.place(holder), s.place(holder)+1)
}

// remember notes a value among the newest most.
func remember[T comparable](list []T, value T, most int) []T {
	list = append(list, value)
	return list[max(0, len(list)-most):]
}
