package needs

import (
	"maps"
	"slices"
)

// How many complete runs an estimate is learned from: the newest.
const (
	LeastRuns = 5
	MostRuns  = 30
)

// Sample is what one run took.
type Sample struct {
	// Complete is false for a run that was cut, or that did only the rest of another: it
	// would have taken at least this much.
	Complete bool
	Took     []Amount // each operation once; an operation that is missing took nothing
}

// Complete is how many of the samples are of complete runs.
func Complete(samples []Sample) (n int) {
	for _, s := range samples {
		if s.Complete {
			n++
		}
	}
	return n
}

// Learn estimates what the next run takes: for each operation the 0.9 quantile, of units
// and of calls, over the last [MostRuns] complete runs. The samples are the newest first;
// those older than the last of these runs do not count. With fewer than [LeastRuns]
// complete runs the estimate is unknown.
//
// A run that was cut says only that as much is needed at least. So it takes part where it
// took more than the quantile of the complete runs, and never lowers the estimate.
func Learn(samples []Sample) Estimate {
	complete := 0
	for i, s := range samples {
		if s.Complete {
			complete++
		}
		if complete == MostRuns {
			samples = samples[:i+1]
			break
		}
	}
	if complete < LeastRuns {
		return Estimate{Source: Unknown}
	}
	operations := map[string]bool{}
	for _, s := range samples {
		for _, a := range s.Took {
			operations[a.Operation] = true
		}
	}
	learned := Estimate{Source: Learned, Runs: complete, Amounts: []Amount{}, Median: []Amount{}, Whole: []Amount{}}
	for _, operation := range slices.Sorted(maps.Keys(operations)) {
		high := Amount{Operation: operation}
		middle, whole := high, high
		high.Units, middle.Units, whole.Units = usual(samples, operation, func(a Amount) int64 { return a.Units })
		high.Calls, middle.Calls, whole.Calls = usual(samples, operation, func(a Amount) int64 { return a.Calls })
		if high.Units > 0 || high.Calls > 0 { // an operation of few runs
			learned.Amounts = append(learned.Amounts, high)
		}
		if middle.Units > 0 || middle.Calls > 0 {
			learned.Median = append(learned.Median, middle)
		}
		if whole.Units > 0 || whole.Calls > 0 {
			learned.Whole = append(learned.Whole, whole)
		}
	}
	return learned
}

// usual are the quantile and the median of what an operation took, in units or in calls, and
// what the complete runs took of it together.
func usual(samples []Sample, operation string, of func(Amount) int64) (high, middle, sum int64) {
	var whole, cut []int64
	for _, s := range samples {
		took := int64(0)
		if at := slices.IndexFunc(s.Took, func(a Amount) bool { return a.Operation == operation }); at >= 0 {
			took = of(s.Took[at])
		}
		if s.Complete {
			whole, sum = append(whole, took), plus(sum, took)
		} else {
			cut = append(cut, took)
		}
	}
	slices.Sort(whole)
	q, middle := quantile(whole), whole[(len(whole)-1)/2]
	for _, least := range cut {
		if least > q {
			whole = append(whole, least)
		}
	}
	slices.Sort(whole)
	return quantile(whole), middle, sum
}

// quantile is the smallest of sorted values that at least 0.9 of them do not exceed.
func quantile(values []int64) int64 { return values[(9*len(values)+9)/10-1] }
