package sqlitestore

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// split is which jobs' charges have lanes of their own, so that shares can be counted: those
// that a pattern matches, by the narrowest that does. A pattern comes with the first call whose limits have a share
// with it, and stays. Entries charged before then move to their lanes in bounded steps.
type split struct {
	patterns []string
	// While entries move, those of lower lanes, and of this one up to the score, have
	// moved.
	moving bool
	lane   int64
	score  int64

	pairs int              // names of pairs in the ledger
	jobs  map[int64]string // while entries move: the matching jobs, by their label's number
}

// jobsOf are the jobs that the patterns match, by their label's number. What is charged
// with a newer label is in its own lane already.
func (s *split) jobsOf(l *ledger) (map[int64]string, error) {
	if s.jobs != nil {
		return s.jobs, nil
	}
	jobs := map[int64]string{}
	var no int64
	var name string
	err := l.c.each("SELECT no, name FROM label WHERE b = ?", []any{l.b}, func() {
		if limit.PatternFor(s.patterns, name) != "" {
			jobs[no] = name
		}
	}, &no, &name)
	if err == nil {
		s.jobs = jobs
	}
	return jobs, err
}

// String is the file's form: the patterns, and while entries move how far they have.
func (s split) String() string {
	text := strings.Join(s.patterns, ",")
	if s.moving {
		text += fmt.Sprintf(" %d %d", s.lane, s.score)
	}
	return text
}

func parseSplit(text string) (s split, err error) {
	f := strings.Fields(text)
	if len(f) > 0 {
		s.patterns = strings.Split(f[0], ",")
	}
	if len(f) > 1 {
		s.moving = true
		s.lane, err = strconv.ParseInt(f[1], 10, 64)
	}
	if err == nil && len(f) > 2 {
		s.score, err = strconv.ParseInt(f[2], 10, 64)
	}
	if err != nil || len(f) == 2 || len(f) > 3 {
		return s, errors.New("the jobs that are counted apart cannot be read")
	}
	return s, nil
}

// base is the operation of a number, which may be a pair's.
func (l *ledger) base(no int64) string {
	operation, _ := limit.CutPair(l.opNames[no])
	return operation
}

// paired is the name under which the ledger counts a job's charges of an operation: the
// pair if a pattern matches the job, and the ledger has room for it. Without room, the
// charges count as nobody's, so that the others' guarantees still hold.
func (l *ledger) paired(operation, job string) string {
	pattern := limit.PatternFor(l.split.patterns, job)
	if pattern == "" || limit.IsPseudo(operation) {
		return operation
	}
	pair := limit.Pair(operation, pattern)
	if _, known := l.ops[pair]; !known && l.split.pairs >= driver.MaxPairs {
		return operation
	}
	return pair
}

// splits reports whether the charges of the limits' shares are in lanes of their own, as far
// as they will be.
func (l *ledger) splits(limits []limit.Limit) bool {
	patterns := limit.Patterns(limits)
	if len(patterns) == 0 || l.n == 0 {
		return true
	}
	return !l.split.moving && (len(l.split.patterns) >= driver.MaxPatterns ||
		!slices.ContainsFunc(patterns, func(p string) bool { return !slices.Contains(l.split.patterns, p) }))
}

// splitFor gives the patterns of the limits' shares lanes of their own, and moves entries there
// that are in others. It reads at most steps entries, and counts steps down.
func (l *ledger) splitFor(limits []limit.Limit, steps *int) (done bool, err error) {
	for _, pattern := range limit.Patterns(limits) {
		if !slices.Contains(l.split.patterns, pattern) && len(l.split.patterns) < driver.MaxPatterns {
			l.split.patterns = append(slices.Clone(l.split.patterns), pattern)
			l.split.moving, l.split.lane, l.split.score, l.split.jobs = l.n > 0, 0, math.MinInt64, nil
		}
	}
	if !l.split.moving {
		return true, nil
	}
	lanes, err := l.lanes()
	if err != nil {
		return false, err
	}
	slices.Sort(lanes)
	for _, lane := range lanes {
		if name := l.opNames[lane/classes]; lane < l.split.lane || !limit.Splits(l.split.patterns, name) || limit.IsPseudo(name) {
			continue
		}
		if lane > l.split.lane {
			l.split.lane, l.split.score = lane, math.MinInt64
		}
		for more := true; more; {
			if *steps <= 0 {
				return false, nil
			}
			if more, err = l.moveSome(lane, steps); err != nil {
				return false, err
			}
		}
	}
	l.split.moving, l.split.jobs = false, nil
	return true, nil
}

// moveSome moves some entries of a lane to the lanes of their jobs. more: there are others.
func (l *ledger) moveSome(lane int64, steps *int) (more bool, err error) {
	upto := toTheEnd
	more, err = l.c.first("SELECT score FROM entry WHERE b = ? AND lane = ? AND score > ? ORDER BY score LIMIT 1 OFFSET ?",
		[]any{l.b, lane, l.split.score, max(1, min(*steps, chunk)/rewriting) - 1}, &upto)
	if err != nil {
		return false, err
	}
	jobs, err := l.split.jobsOf(l)
	if err != nil {
		return false, err
	}
	var list []entry
	var one entry
	read := 0
	err = l.c.each("SELECT "+entryColumns+" FROM entry WHERE b = ? AND lane = ? AND score > ? AND score <= ?",
		[]any{l.b, lane, l.split.score, upto}, func() {
			if read++; jobs[one.job] != "" {
				list = append(list, one)
			}
		}, one.columns()...)
	if err != nil {
		return false, err
	}
	*steps -= max(1, rewriting*read)
	operation := l.base(lane / classes)
	for _, e := range list {
		op, err := l.number(operation, jobs[e.job])
		if err != nil {
			return false, err
		}
		to := laneOf(op, e.units, e.state)
		if to == lane {
			continue // it is there, or there is no room for the pair
		}
		moved := e
		moved.lane = to
		if err := l.move(&e, &moved); err != nil {
			return false, err
		}
		l.count(lane, e.state, e.score, -e.units, -e.calls)
		l.count(to, e.state, e.score, e.units, e.calls)
	}
	if len(list) > 0 {
		l.walkNo++
		for _, m := range l.meters {
			if m.reached != toTheEnd { // its replay may have passed them in one lane, or not yet in the other
				l.replayAnew(m)
			}
		}
	}
	l.split.score = upto
	return more, nil
}
