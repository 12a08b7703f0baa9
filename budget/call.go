package budget

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// Call is one call to the upstream, about to be made.
type Call struct {
	// Operation is the priced name, as in costs.toml: "search.list".
	Operation string
	// Units override the price when set; 0 to MaxUnits.
	Units *int64
	// ID makes the charge unique: the same id again is charged once. If empty, an id is
	// made. 1 to 128 printable ASCII characters without spaces.
	ID string
	// NewID: the ID was made for this call and never sent before. If the call is not
	// sent, it is then known that nothing was charged.
	NewID bool
	// Labels are kept with the charge.
	Labels Labels
	// Fence is the number of the pass that the call is made for, as the daemon assigns
	// it; 0 for none. It needs the label Job. Once another daemon considers the pass
	// dead, these calls fail with ErrFenced.
	Fence int64
	// Floor is how many units must remain after this call in every limit that counts
	// units, so that less important calls leave units for others. 0: the floor of the
	// labels' job, else none. NoFloor: none, whatever the job says.
	Floor int64
	// UseHeadroom lets the call spend the headroom: the bound is the quota.
	UseHeadroom bool
	// OnStoreError is the call's own policy; empty asks the configuration: the
	// operation, the job of the labels, the upstream. Open grants nothing unless
	// package outage wraps the store, because it has the host's allowance.
	OnStoreError Policy
	// MaxWait bounds how long [Budget.Wait] waits for units, and not how long the store takes
	// to decide. 0: the context's deadline does, which bounds both, else the max_wait of the
	// labels' job.
	MaxWait time.Duration

	exact bool // no refusal that is remembered will do
	holds bool // it asks for a hold
}

// labelsText formats labels for messages.
func labelsText(l Labels) string {
	var words []string
	for _, label := range []struct{ name, text string }{{"job", l.Job}, {"region", l.Region}, {"run", l.Run}} {
		if label.text != "" {
			words = append(words, label.name+" "+label.text)
		}
	}
	return cmp.Or(strings.Join(words, ", "), "none")
}

// fillID makes an id if the call has none.
func (c *Call) fillID() {
	if c.ID == "" {
		c.ID, c.NewID = newID(), true
	}
}

// NoFloor is the Floor of a call that need not leave any units, even if its job has a
// floor.
const NoFloor int64 = math.MinInt64

// Receipt says that a call was charged.
type Receipt struct {
	Budget    string
	Operation string
	ID        string
	Units     int64
	// At is when the charge was taken, on the store's clock.
	At time.Time
	// Limit is the covering limit with the least left afterwards, and Remaining is how
	// much, in units or calls as it counts. Limits that count units come before limits
	// that count calls.
	Limit     string
	Remaining int64
	// Replayed: the id was charged before. This is the first answer again; nothing more
	// was charged.
	Replayed bool
	// Ended is how a replayed reservation has ended; a released one counts nowhere.
	Ended driver.Ended
	// Warning says why a replay is probably not a retry but another call with a used
	// id, which is not counted: the reservation has ended, or it was charged with other
	// labels. Empty: nothing is wrong.
	Warning string
	// Observed says what would have refused the call without observe mode: the name of
	// a limit, ObservedLock, or a reason in a word. Empty: nothing, or it is a replay.
	Observed string
	// Source is SourceStore, SourceAllowance or SourceNone.
	Source string

	seen *seen // what the limits had used after the decision; nil: unknown
}

// seen is what the limits had used at one decision.
type seen struct {
	limits []limit.Limit
	used   []int64
}

// of returns what the limit with this name had used; 0 if that is unknown.
func (s *seen) of(limit string) int64 {
	for i := range s.length() {
		if s.limits[i].Name == limit {
			return s.used[i]
		}
	}
	return 0
}

func (s *seen) length() int {
	if s == nil || len(s.used) != len(s.limits) {
		return 0
	}
	return len(s.limits)
}

// The values of Source: the one that decided.
const (
	// SourceStore: the store.
	SourceStore = "store"
	// SourceAllowance: the host, from its allowance, while the store was out of reach.
	// At is then the host's time, and Limit and Remaining are those of the allowance.
	// The store records the charge once it answers again.
	SourceAllowance = "allowance"
	// SourceNone: nobody, in observe mode: it could not be counted.
	SourceNone = "none"
)

// Validate checks what needs no configuration; a lease in µs of more than 0 makes the
// call a reservation. The error wraps ErrInvalid or ErrTooManyUnits.
func (c Call) Validate(lease int64) error {
	item := driver.Item{Operation: c.Operation, ID: cmp.Or(c.ID, "-"), Labels: c.Labels, Lease: lease}
	if c.Units != nil {
		item.Units = *c.Units
	}
	if err := item.Validate(); err != nil {
		return err
	}
	switch {
	case c.Floor != NoFloor && (c.Floor < 0 || c.Floor > limit.MaxUnits):
		return fmt.Errorf("%w: a floor of %d units: use 0 to %d", ErrTooManyUnits, c.Floor, limit.MaxUnits)
	case c.Fence < 0 || c.Fence > 0 && c.Labels.Job == "":
		return fmt.Errorf("%w: fence %d: use a number from 1 on, and the label of its job", ErrInvalid, c.Fence)
	case c.OnStoreError != "" && c.OnStoreError != Closed && c.OnStoreError != Open:
		return fmt.Errorf("%w: on_store_error %q: use %q or %q", ErrInvalid, c.OnStoreError, Closed, Open)
	}
	return nil
}
