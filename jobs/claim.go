package jobs

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
)

// DefaultHeartbeat is how often a pass renews its claim, which stands four times as
// long. A pass whose process died holds its job up until a daemon has found the claim,
// by looking at all jobs each other heartbeat, and watched it for as long: eight
// heartbeats in all.
const DefaultHeartbeat = 15 * time.Second

// hold is how long a claim stands that is not renewed.
func (r *Runner) hold() time.Duration { return 4 * r.options.Heartbeat }

// look takes one step for a job, and records what it came to.
func (r *Runner) look(ctx context.Context, j *Job, me claimant) (done stepped, s *state, lapsed []claim, err error) {
	err = r.change(ctx, j, func(found *state, at clocks) (edit, error) {
		if err := at.check(); err != nil {
			return edit{}, err
		}
		s = found
		done = j.step(s, at, me)
		lapsed = s.lapsed(at, me.hold)
		if !done.changed {
			return edit{}, errStays
		}
		return edit{records: done.kept()}, nil
	})
	if err == nil {
		r.endCancelled(s.Active)
	}
	return done, s, lapsed, err
}

// kept are the records of a step as the history keeps them: by their newest ticks.
func (d *stepped) kept() []driver.JobRecord {
	var list []driver.JobRecord
	for i, record := range d.records {
		newest := record.Tick
		if record.Until != nil {
			newest = *record.Until
		}
		list = append(list, driver.JobRecord{At: newest.UnixMicro(), ID: d.ids[i], Text: record.json()})
	}
	return list
}

// dead are those of the claims of a job that were not renewed in time whose passes are
// dead; wait is how long until others of them may be: 0 where there are none.
func (r *Runner) dead(j *Job, lapsed []claim) (dead []claim, wait time.Duration) {
	past := map[string]int64{}
	for _, c := range lapsed {
		past[c.Holder] = c.Until
	}
	found, wait := r.watch.dead(j.Name, past)
	for _, c := range lapsed {
		if found[c.Holder] {
			dead = append(dead, c)
		}
	}
	return dead, wait
}

// unfencedAfter is how long a dead pass whose budget is not configured here holds its
// job up while the store of that budget's ledger is out of reach.
const unfencedAfter = time.Hour

// fence shuts out the passes of claims that are taken for dead: from then on none of
// their calls is charged to the budget that they began with, which may be another
// than the job's is here, or not be configured here at all. A pass that comes back to
// life ends by that. What is returned are the claims that may be recorded as lost,
// each with the error that kept it from being shut out, if any: only one whose budget
// this configuration has not, and that cannot be shut out by waiting. What they have
// spent is final then.
func (r *Runner) fence(ctx context.Context, j *Job, dead []claim) (map[string]reaped, error) {
	reap := map[string]reaped{}
	for _, c := range dead {
		log := r.log.With("job", j.Name, "budget", c.Budget, "tick", formatTick(time.UnixMicro(c.Tick)))
		spends := r.budget(c.Budget)
		elsewhere := spends == nil
		if elsewhere { // budgets of one store are fenced by their names alone
			spends = r.budget(j.Budget)
		}
		err := spends.FenceIn(ctx, c.Budget, j.Name, c.Fence)
		passes := errors.Is(err, budget.ErrUnavailable) && c.silent < unfencedAfter
		switch {
		case err == nil && elsewhere:
			log.Info("a pass that is taken for dead is shut out of its budget, which is not configured here")
		case err == nil:
		case elsewhere && !passes && ctx.Err() == nil:
			log.Error("a pass that is taken for dead is not shut out of its budget, which is not configured here: if it goes on, what it calls is charged there", "error", err)
		default:
			log.Warn("a pass that is taken for dead cannot be shut out of its budget yet; its job waits for that", "error", err)
			r.watch.forget(j.Name)
			return reap, err
		}
		found := reaped{unfenced: err}
		if !elsewhere {
			found.spent = j.spentOf(ctx, spends, c, r.now(), log)
		}
		reap[c.Holder] = found
	}
	return reap, nil
}

// renew keeps a claim standing, with the record so far; false when it is gone. A pass
// that a person has ended ends by it.
func (p *pass) renew(ctx context.Context, progress json.RawMessage) (mine bool, err error) {
	var active []claim
	err = p.change(ctx, p.job, func(s *state, at clocks) (edit, error) {
		active = s.Active
		c := s.claimOf(p.claim.Holder)
		if mine = c != nil; !mine {
			return edit{}, errStays
		}
		c.Until, c.Progress = at.now+p.hold().Microseconds(), progress
		return edit{}, nil
	})
	if err == nil {
		p.endCancelled(active)
	}
	return mine, err
}

// conclude gives the claim up and records the pass; false, with nothing recorded,
// when it was taken for dead.
func (p *pass) conclude(ctx context.Context, record Record, next string) (recorded bool, err error) {
	err = p.insist(ctx, func(unsure bool) error {
		return p.change(ctx, p.job, func(s *state, _ clocks) (edit, error) {
			if s.claimOf(p.claim.Holder) == nil {
				recorded = unsure && !slices.Contains(s.Reaped, p.claim.Holder)
				return edit{}, errStays
			}
			recorded = true
			s.drop(p.claim.Holder)
			if p.claim.regions() == nil {
				s.NextRegion = next
				if record.Outcome == Succeeded {
					s.LastSuccess = record.Ended.UnixMicro()
				}
			}
			s.Last = record.brief().json()
			return edit{records: []driver.JobRecord{{At: p.claim.Tick, ID: p.claim.Holder, Text: record.json()}}}, nil
		})
	})
	return recorded && err == nil, err
}

// insist does something with the state, again until that answers or the context ends;
// unsure says that an attempt without an answer may have done it.
func (p *pass) insist(ctx context.Context, do func(unsure bool) error) error {
	for unsure := false; ; unsure = true {
		err := do(unsure)
		if !errors.Is(err, budget.ErrUnavailable) {
			return err
		}
		if !unsure {
			p.log.Warn("the pass has ended, and the store does not answer; trying again", "tick", formatTick(p.tick), "error", err)
		}
		if sleep(ctx, lastWordsAgain) != nil {
			return err
		}
	}
}

// keep changes values beside the job's document while the claim stands; false when
// it does not any more.
func (p *pass) keep(ctx context.Context, values map[string][]byte) (mine bool, err error) {
	err = p.change(ctx, p.job, func(s *state, _ clocks) (edit, error) {
		if mine = s.claimOf(p.claim.Holder) != nil; !mine {
			return edit{}, errStays
		}
		return edit{values: values, same: true}, nil
	})
	return mine && err == nil, err
}

// newHolder names a claim: where its pass runs, and what no other has.
func newHolder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "a host without a name"
	}
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), rand.Text())
}

// placeOf is where a holder's pass runs, for people.
func placeOf(holder string) string {
	parts := strings.Split(holder, "/")
	if len(parts) != 3 {
		return "of " + holder
	}
	return fmt.Sprintf("in process %s on %s", parts[1], parts[0])
}
