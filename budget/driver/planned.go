package driver

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/quotactl/quotactl/budget/limit"
)

// PlanChange writes what a daemon knows to be still needed of shares whose guarantees lapse by
// plan, in place of all that it wrote before. The answer is [Planned].
type PlanChange struct {
	Budget string
	Now    int64  // the caller's wall clock in µs, a witness
	Writer string // names the daemon among all that ever wrote: a valid name
	Shares []PlannedShare
}

// PlannedShare is what a record says of one share of one limit.
type PlannedShare struct {
	Key string // [limit.Limit.PlanKey]
	// Jobs is a digest of the jobs whose needs the writer counted, without blanks; "-": it does
	// not matter. Stores take no notice.
	Jobs string
	limit.Planned
}

// Planned is the answer to a PlanChange.
type Planned struct{ Now int64 }

func (c PlanChange) Doing() string { return "write what shares still need in " + c.Budget }
func (PlanChange) answer(Planned)  {}
func (Planned) changed()           {}

// MaxPlanners is how many daemons' records of one share a ledger distinguishes, and MaxPlans how
// many records in all. Of more it keeps one that says full.
const (
	MaxPlanners = 16
	MaxPlans    = 512
)

// Plan is a record, and who wrote it.
type Plan struct {
	Writer string
	PlannedShare
}

// Plans are the records of a ledger.
type Plans []Plan

// anyone writes the records that stand for several, and anyShare is the key of one for all.
const anyone, anyShare = "*", "*"

// With returns the records with those of a change at now, without what has ended. None ends
// later than limit.MaxPlanned after now. Where there would be more than a ledger keeps, one in
// their place guarantees all until the last of them ends.
func (p Plans) With(c PlanChange, now int64) (Plans, error) {
	if !ValidName(c.Writer) {
		return nil, fmt.Errorf("%s: %w: the writer %q is not a name", c.Doing(), ErrInvalid, c.Writer)
	}
	list := slices.DeleteFunc(p.Within(now), func(one Plan) bool { return one.Writer == c.Writer })
	for _, s := range c.Shares {
		if s.Key == "" || strings.ContainsAny(s.Key, " \n*") || s.Guarantee < 0 || s.Guarantee > 2*limit.MaxUnits {
			return nil, fmt.Errorf("%s: %w: a guarantee of %d for share %q: use 0 to %d, and keys of limit.Limit.PlanKey", c.Doing(), ErrInvalid, s.Guarantee, s.Key, 2*limit.MaxUnits)
		}
		if s.Jobs == "" || strings.ContainsAny(s.Jobs, " \n") {
			s.Jobs = "-"
		}
		if s.Until = min(s.Until, now+limit.MaxPlanned); s.Until <= now {
			continue
		}
		list = append(list, Plan{c.Writer, s})
		list = list.inOne(s.Key, MaxPlanners, func(one Plan) bool { return one.Key == s.Key })
	}
	return list.inOne(anyShare, MaxPlans, func(Plan) bool { return true }), nil
}

// inOne replaces records by one, if they are more than a number.
func (p Plans) inOne(key string, most int, these func(Plan) bool) Plans {
	n, until := 0, int64(0)
	for _, one := range p {
		if these(one) {
			n, until = n+1, max(until, one.Until)
		}
	}
	if n <= most {
		return p
	}
	rest := slices.DeleteFunc(slices.Clone(p), these)
	return append(rest, Plan{anyone, PlannedShare{key, "-", limit.Planned{Guarantee: 2 * limit.MaxUnits, Until: until}}})
}

// Within returns the records that have not ended at now.
func (p Plans) Within(now int64) (list Plans) {
	for _, one := range p {
		if one.Until > now {
			list = append(list, one)
		}
	}
	return list
}

// Of returns limits whose shares that lapse by plan have their records; those that have ended
// at now may be among them. It leaves the given ones alone.
func (p Plans) Of(limits []limit.Limit) []limit.Limit {
	if !slices.ContainsFunc(limits, limit.Limit.ByPlan) {
		return limits
	}
	list := slices.Clone(limits)
	for i := range list {
		l := &list[i]
		if !l.ByPlan() {
			continue
		}
		l.Shares = slices.Clone(l.Shares)
		for j := range l.Shares {
			s := &l.Shares[j]
			if s.Planned = nil; !s.Plan {
				continue
			}
			key := l.PlanKey(j)
			for _, one := range p {
				if one.Key == key || one.Key == anyShare {
					s.Planned = append(s.Planned, one.Planned)
				}
			}
		}
	}
	return list
}

// String is the records as ParsePlans reads them: "WRITER KEY JOBS GUARANTEE UNTIL" each.
func (p Plans) String() string {
	var words []string
	for _, one := range p {
		words = append(words, one.Writer, one.Key, one.Jobs, strconv.FormatInt(one.Guarantee, 10), strconv.FormatInt(one.Until, 10))
	}
	return strings.Join(words, " ")
}

// ParsePlans reads what String wrote.
func ParsePlans(text string) (Plans, error) {
	words := strings.Fields(text)
	if len(words)%5 != 0 {
		return nil, fmt.Errorf("the records %q of what shares need are not writers, shares, jobs, guarantees and instants", text)
	}
	var p Plans
	for five := range slices.Chunk(words, 5) {
		guarantee, err := strconv.ParseInt(five[3], 10, 64)
		if err == nil {
			var until int64
			if until, err = strconv.ParseInt(five[4], 10, 64); err == nil {
				p = append(p, Plan{five[0], PlannedShare{five[1], five[2], limit.Planned{Guarantee: guarantee, Until: until}}})
			}
		}
		if err != nil {
			return nil, fmt.Errorf("the records %q of what shares need: %w", text, err)
		}
	}
	return p, nil
}

// PlanUntil is the instant (µs) up to which records of a limit count needs, from now on: a
// calendar's reset; in a rolling limit one window and the longest lease from now.
func PlanUntil(l limit.Limit, now int64) int64 {
	if l.Window.Kind == limit.CalendarKind {
		_, until := l.Window.Span(now)
		return until
	}
	return now + l.Window.Longest() + MaxLease.Microseconds()
}
