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
//
// The estimate's Median is of the complete runs alone.
func Learn(samples []Sample) Estimate {
	e := learn(samples, quantile)
	if e.Source == Learned {
		complete := slices.DeleteFunc(slices.Clone(samples), func(s Sample) bool { return !s.Complete })
		e.Median = learn(complete, median).Amounts
	}
	return e
}

// Most is Learn with the most that one of these runs took, in place of the quantile: what the
// next run may take.
func Most(samples []Sample) Estimate { return learn(samples, slices.Max[[]int64]) }

// learn is Learn with what stands for several values.
func learn(samples []Sample, of func([]int64) int64) Estimate {
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
	learned := Estimate{Source: Learned, Runs: complete, Amounts: []Amount{}}
	for _, operation := range slices.Sorted(maps.Keys(operations)) {
		a := Amount{
			Operation: operation,
			Units:     usual(samples, operation, of, func(a Amount) int64 { return a.Units }),
			Calls:     usual(samples, operation, of, func(a Amount) int64 { return a.Calls }),
		}
		if a.Units > 0 || a.Calls > 0 { // an operation of few runs
			learned.Amounts = append(learned.Amounts, a)
		}
	}
	return learned
}

// usual is what stands for what an operation took, in units or in calls.
func usual(samples []Sample, operation string, several func([]int64) int64, of func(Amount) int64) int64 {
	var whole, cut []int64
	for _, s := range samples {
		took := int64(0)
		if at := slices.IndexFunc(s.Took, func(a Amount) bool { return a.Operation == operation }); at >= 0 {
			took = of(s.Took[at])
		}
		if s.Complete {
			whole = append(whole, took)
		} else {
			cut = append(cut, took)
		}
	}
	q := several(whole)
	for _, least := range cut {
		if least > q {
			whole = append(whole, least)
		}
	}
	return several(whole)
}

// quantile is the smallest of the values that at least 0.9 of them do not exceed.
func quantile(values []int64) int64 {
	slices.Sort(values)
	return values[(9*len(values)+9)/10-1]
}

// median is the smallest of the values that at least half of them do not exceed.
func median(values []int64) int64 {
	slices.Sort(values)
	return values[(len(values)-1)/2]
}
