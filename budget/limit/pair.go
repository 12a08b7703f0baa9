package limit

import (
	"slices"
	"strings"
)

// pairMark separates the two names of a pair. No operation's and no job's name has one.
const pairMark = "@"

// Pair is the name under which a ledger counts one job's charges of an operation apart
// from the others': "search.list@nightly".
func Pair(operation, job string) string { return operation + pairMark + job }

// CutPair is the opposite of Pair. The job is empty if the name is an operation's alone.
func CutPair(name string) (operation, job string) {
	operation, job, _ = strings.Cut(name, pairMark)
	return operation, job
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

// MatchJob reports whether one of the patterns matches a job.
func MatchJob(patterns []string, job string) bool { return Share{Jobs: patterns}.Has(job) }

// ChecksNext reports whether the limit needs the totals of its calendar's next period: a
// guarantee that has lapsed in this one is in force there.
func (l Limit) ChecksNext() bool { return len(l.Lapses()) > 0 }

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
