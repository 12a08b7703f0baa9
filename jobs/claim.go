package jobs

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
)

// DefaultHeartbeat is how often a pass renews its claim. If the process dies, its pass
// blocks the job for up to eight heartbeats: the claim expires after four, a daemon finds
// it in its sweep of all jobs within two more, and watches it for another two.
const DefaultHeartbeat = 15 * time.Second

const (
	// finalWriteTimeout bounds the write of a record, which is tried even when the
	// context has ended; finalWriteRetry is the pause between attempts.
	finalWriteTimeout = 5 * time.Second
	finalWriteRetry   = 500 * time.Millisecond
	// claimTimeout bounds the check whether a claim is valid, and the question what a run
	// spent.
	claimTimeout = 2 * time.Second
)

// heldClaim is the claim of a pass of this process.
type heldClaim struct {
	claim claim
	docs  *documents
	job   *Job
	log   *slog.Logger
	next  string // the region that the next pass begins with, once the pass is recorded
	// partly: the run that succeeded is of some regions, and others of its tick have none that did.
	partly bool
}

// renew extends the claim and stores the record so far; mine is false if the claim is
// lost. It also returns all claims of the job, since a person may have cancelled some.
func (h *heldClaim) renew(ctx context.Context, progress json.RawMessage) (mine bool, active []claim, err error) {
	err = h.docs.change(ctx, h.job, func(s *state, at clocks) (edit, error) {
		active = s.Active
		c := s.claimOf(h.claim.Holder)
		if mine = c != nil; !mine {
			return edit{}, errStays
		}
		c.Until, c.Progress = at.now+h.docs.hold().Microseconds(), progress
		return edit{}, nil
	})
	return mine, active, err
}

// conclude gives up the claim and records the pass; what is left, unless nil, is deferred.
// It returns the record of all the pass's parts, and false, with nothing recorded, if the
// pass was declared dead.
func (h *heldClaim) conclude(ctx context.Context, record Record, left *deferred) (recorded bool, whole Record, err error) {
	whole = record
	err = h.retryUnavailable(ctx, func(unsure bool) error {
		return h.docs.change(ctx, h.job, func(s *state, at clocks) (edit, error) {
			if s.claimOf(h.claim.Holder) == nil {
				recorded = unsure && !slices.Contains(s.Dead, h.claim.Fence)
				return edit{}, errStays
			}
			recorded = true
			s.drop(h.claim.Holder)
			s.ran(&h.claim, record.Runs)
			whole = h.claim.amends(record)
			if left != nil {
				whole = h.job.postpone(s, at, left, whole)
			}
			switch {
			case whole.Outcome != Succeeded:
			case h.claim.Outside:
				s.complete(h.job, &h.claim, whole.Ended.UnixMicro())
			case h.claim.whole():
				s.LastSuccess = whole.Ended.UnixMicro()
			}
			h.next = s.begins(h.job)
			return h.last(s, whole), nil
		})
	})
	return recorded && err == nil, whole, err
}

// ping pings how a pass has ended, unless it is one of some regions whose others still lack a run
// that succeeded.
func (h *heldClaim) ping(r *Runner, record Record) {
	if !h.partly {
		r.options.Ping(h.job, record)
	}
}

// giveBack gives the tick back for other daemons to take. If a person cancelled the pass
// before this daemon noticed, it records the tick as skipped instead and returns the
// cancel.
func (h *heldClaim) giveBack(ctx context.Context, record Record) (by *Cancel, err error) {
	err = h.retryUnavailable(ctx, func(bool) error {
		return h.docs.change(ctx, h.job, func(s *state, at clocks) (edit, error) {
			c := s.claimOf(h.claim.Holder)
			if c == nil {
				return edit{}, errStays
			}
			by = c.Cancel
			s.drop(h.claim.Holder)
			switch {
			case by != nil:
				skipped := record
				skipped.cancel(*by)
				return h.last(s, h.claim.amends(skipped)), nil
			case h.claim.Part > 1:
				s.putBack(&h.claim, at)
			case h.claim.Request != nil:
				s.Requests = slices.Insert(s.Requests, 0, *h.claim.Request)
			default:
				s.Waiting = slices.Insert(s.Waiting, 0, waiting{h.claim.Tick, h.claim.Kind})
			}
			return edit{}, nil
		})
	})
	if err == nil {
		err = notifyDaemons(ctx, h.docs.state, h.job.Name)
	}
	return by, err
}

// last makes the record that of the job's last pass.
func (h *heldClaim) last(s *state, record Record) edit {
	merged := h.claim.merged(s, record)
	h.partly = h.claim.Outside && record.Outcome == Succeeded && !h.job.Complete(merged)
	s.Last = merged.json()
	return edit{records: []driver.JobRecord{{At: h.claim.Tick, ID: h.claim.recordID(), Text: record.json()}}}
}

// retryUnavailable repeats do until the state answers or the context ends. unsure says
// that an earlier attempt, whose answer was lost, may have succeeded.
func (h *heldClaim) retryUnavailable(ctx context.Context, do func(unsure bool) error) error {
	for unsure := false; ; unsure = true {
		err := do(unsure)
		if !errors.Is(err, budget.ErrUnavailable) {
			return err
		}
		if !unsure {
			h.log.Warn("the pass has ended, but the store does not answer; trying again", "tick", formatTick(time.UnixMicro(h.claim.Tick)), "error", err)
		}
		if waitFor(ctx, finalWriteRetry) != nil {
			return err
		}
	}
}

// keep changes values beside the job's document while the claim is valid; false when it
// is not.
func (h *heldClaim) keep(ctx context.Context, values map[string][]byte) (mine bool, err error) {
	err = h.docs.change(ctx, h.job, func(s *state, _ clocks) (edit, error) {
		if mine = s.claimOf(h.claim.Holder) != nil; !mine {
			return edit{}, errStays
		}
		return edit{values: values, same: true}, nil
	})
	return mine && err == nil, err
}

// value reads a value beside the job's document, and retries for a while if the store
// does not answer.
func (h *heldClaim) value(ctx context.Context, key string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, finalWriteTimeout)
	defer cancel()
	for {
		value, err := h.docs.state.JobValue(ctx, h.job.Name, key)
		if err == nil || waitFor(ctx, finalWriteRetry) != nil {
			return value, err
		}
	}
}

// stands reports whether the claim is valid; also true when the store does not answer.
func (h *heldClaim) stands(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTimeout)
	defer cancel()
	found, err := h.docs.state.Job(ctx, h.job.Name)
	if err != nil {
		return true
	}
	s, err := readDocument[state](h.job.Name, found)
	return err != nil || s.claimOf(h.claim.Holder) != nil
}

// newHolder makes a unique name for a claim: host, process and a random text.
func newHolder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "a host without a name"
	}
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), rand.Text())
}

// placeOf says where a holder's pass runs, for people.
func placeOf(holder string) string {
	parts := strings.Split(holder, "/")
	if len(parts) != 3 {
		return "of " + holder
	}
	return fmt.Sprintf("in process %s on %s", parts[1], parts[0])
}

// before is the record of the parts of the claimed pass that were run before; the zero Record
// if there are none.
func (c *claim) before() Record {
	record, err := readRecord(c.Before)
	if err != nil { // there are none, or another version wrote it
		return Record{}
	}
	return record
}

// recordID is the ID of the pass's record, which all its parts share.
func (c *claim) recordID() string {
	if c.Part > 1 {
		return c.Record
	}
	return c.Holder
}

// amends returns the record of the whole pass, of which record is a part; lost parts are
// among its runs too.
func (c *claim) amends(record Record) Record {
	if c.Part <= 1 {
		return record
	}
	whole, err := readRecord(c.Before)
	if err != nil { // written by another version
		return record
	}
	whole.Parts, whole.Ended, whole.Host, whole.Error = c.Part, record.Ended, record.Host, record.Error
	whole.Runs = slices.Clone(whole.Runs)
	for _, later := range record.Runs {
		i := slices.IndexFunc(whole.Runs, func(run Run) bool { return run.Region == later.Region })
		if i < 0 {
			whole.Runs = append(whole.Runs, later)
			continue
		}
		whole.Runs[i] = whole.Runs[i].then(later)
	}
	for i := range whole.Runs { // what the part has no run of
		run := &whole.Runs[i]
		switch {
		case run.Reason != ReasonDeferred, slices.ContainsFunc(record.Runs, func(r Run) bool { return r.Region == run.Region }):
		case slices.Contains(c.Regions, run.Region): // it was lost before it reported
			run.Reason = record.Reason
		default: // the configuration lost the region while the pass waited
			run.Reason = ReasonRemoved
		}
	}
	outcome, reason := record.Outcome, record.Reason
	whole.conclude()
	if outcome == Lost || outcome == whole.Outcome {
		whole.Outcome, whole.Reason = outcome, reason
	}
	return whole
}
