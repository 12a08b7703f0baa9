// Package needs says what a run is expected to take, from what earlier runs took. It is
// arithmetic alone: package jobs reads the configuration and the records.
package needs

import (
	"cmp"
	"slices"
)

// Amount is what one operation takes.
type Amount struct {
	Operation string `json:"operation"`
	Units     int64  `json:"units"` // 0 to 10^15
	Calls     int64  `json:"calls"`
}

// Source says where an estimate comes from.
type Source string

// The sources, in the order in which the first that there is counts.
const (
	Configured Source = "configured" // the job's needs
	Learned    Source = "learned"    // what its last complete runs took
	Bound      Source = "bound"      // the price of the most pages that a fetch may ask for
	Unknown    Source = "unknown"
)

// Estimate is what a run, or several, are expected to take.
type Estimate struct {
	Source Source
	// Amounts are ordered by operation, each operation once; none if Source is Unknown.
	Amounts []Amount
	// Runs is how many complete runs it was learned from, of several regions the fewest;
	// 0 if Source is not Learned.
	Runs int
	// Mean is what the complete runs that it was learned from took in the mean, by operation as
	// Amounts and never above them; nil if Source is not Learned.
	Mean []Amount
	// Most is what [Most] estimates of the same runs; nil if nothing was learned.
	Most []Amount
}

// Middle is the estimate with its means for amounts, if it was learned: many runs together take
// so much each, where Amounts are what is enough for nine of ten.
func (e Estimate) Middle() Estimate {
	if e.Source == Learned {
		e.Amounts = e.Mean
	}
	return e
}

// Units is the sum over the operations, and whether it is known. It is never above the
// largest int64.
func (e Estimate) Units() (units int64, known bool) {
	for _, a := range e.Amounts {
		units = plus(units, a.Units)
	}
	return units, e.Source != Unknown && e.Source != ""
}

// Less is what a run still takes that goes on after it took a part of the estimate: of each
// operation one call at least, since calls that failed are among what it took.
func (e Estimate) Less(took []Amount) Estimate {
	e.Amounts = slices.Clone(e.Amounts)
	for i := range e.Amounts {
		a := &e.Amounts[i]
		at := slices.IndexFunc(took, func(t Amount) bool { return t.Operation == a.Operation })
		if at < 0 || a.Calls == 0 {
			continue
		}
		a.Units, a.Calls = max(a.Units-took[at].Units, a.Units/a.Calls+min(1, a.Units%a.Calls)), max(a.Calls-took[at].Calls, 1)
	}
	return e
}

// Sum is what several runs take together. All must have the same source; if they do not,
// or there is none, it is unknown.
func Sum(list []Estimate) Estimate {
	if len(list) == 0 {
		return Estimate{Source: Unknown}
	}
	sum := Estimate{Source: list[0].Source, Runs: list[0].Runs}
	for _, e := range list {
		if e.Source != sum.Source {
			return Estimate{Source: Unknown}
		}
		sum.Runs = min(sum.Runs, e.Runs)
		sum.Amounts = append(sum.Amounts, e.Amounts...)
		sum.Mean = append(sum.Mean, e.Mean...)
	}
	sum.Amounts = Together(sum.Amounts)
	if sum.Mean != nil {
		sum.Mean = Together(sum.Mean)
	}
	return sum
}

// Together adds up the amounts of each operation and orders them by operation. The result
// is never nil.
func Together(list []Amount) []Amount {
	sums := make([]Amount, 0, len(list))
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b Amount) int { return cmp.Compare(a.Operation, b.Operation) })
	for _, a := range list {
		if last := len(sums) - 1; last >= 0 && sums[last].Operation == a.Operation {
			sums[last].Units, sums[last].Calls = plus(sums[last].Units, a.Units), plus(sums[last].Calls, a.Calls)
			continue
		}
		sums = append(sums, a)
	}
	return sums
}

// plus adds two numbers that are not negative; a sum that is too large for an int64 is the
// largest.
func plus(a, b int64) int64 {
	const most = 1<<63 - 1
	if a > most-b {
		return most
	}
	return a + b
}
