package limit

import (
	"slices"
	"strings"
)

// pairMark separates the two names of a pair. No operation's and no job's name has one.
const pairMark = "@"

// Pair is the name under which a ledger counts the charges of an operation for some jobs
// apart from the others': "search.list@nightly", "search.list@tenant.*".
func Pair(operation, pattern string) string { return operation + pairMark + pattern }

// CutPair is the opposite of Pair. The pattern is empty if the name is an operation's alone.
func CutPair(name string) (operation, pattern string) {
	operation, pattern, _ = strings.Cut(name, pairMark)
	return operation, pattern
}

// PatternFor is the narrowest of the patterns that match a job, under which its charges
// count; empty if none does.
func PatternFor(patterns []string, job string) string {
	narrowest := ""
	for _, pattern := range patterns {
		if job != "" && MatchOperation(pattern, job) && (narrowest == "" || within(pattern, narrowest)) {
			narrowest = pattern
		}
	}
	return narrowest
}

// within reports whether a pattern matches no job that the other one does not match.
func within(pattern, other string) bool {
	prefix, ok := strings.CutSuffix(pattern, "*")
	return MatchOperation(other, prefix) && (!ok || strings.HasSuffix(other, "*"))
}

// HasPattern reports whether the jobs of a pattern, which is a pair's, belong to the share.
// Those of a narrower pattern count under that.
func (s Share) HasPattern(pattern string) bool {
	return pattern != "" && slices.ContainsFunc(s.Jobs, func(own string) bool { return within(pattern, own) })
}

// Splits reports whether one of the patterns is narrower than a pair's, so that some of the
// charges under the pair may have to count elsewhere. An operation's own charges may.
func Splits(patterns []string, pair string) bool {
	_, pattern := CutPair(pair)
	return pattern == "" || slices.ContainsFunc(patterns, func(one string) bool { return one != pattern && within(one, pattern) })
}

// Patterns are the job patterns of all shares of the limits, each once.
func Patterns(limits []Limit) []string {
	var list []string
	for _, l := range limits {
		for _, s := range l.Shares {
			for _, pattern := range s.Jobs {
				if !slices.Contains(list, pattern) {
					list = append(list, pattern)
				}
			}
		}
	}
	return list
}

// ChecksNext reports whether the limit needs the totals of its calendar's next period: a
// guarantee that has lapsed in this one, by hours or by plan, is in force there.
func (l Limit) ChecksNext() bool {
	return len(l.Lapses()) > 0 || l.Window.Kind == CalendarKind && l.ByPlan()
}

// Windows are the windows whose totals the limits need, each shape once, in order; buckets
// have none.
func Windows(limits []Limit) []Window {
	var list []Window
	var keys []string
	add := func(w Window) {
		if key := w.Key(); !slices.Contains(keys, key) {
			list, keys = append(list, w), append(keys, key)
		}
	}
	for _, l := range limits {
		if l.Window.Kind == Bucket {
			continue
		}
		add(l.Window)
		if l.ChecksNext() {
			add(l.Window.AfterReset())
		}
	}
	return list
}
