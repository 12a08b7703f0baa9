package needs

import (
	"maps"
	"math"
	"slices"
)

// How many complete runs an estimate is learned from: the newest.
const (
	LeastRuns = 5
	MostRuns  = 30
)

// Sample is what one run took.
type Sample struct {
	// Complete is false for a run that was interrupted, or that did only the rest of another:
	// it would have taken at least this much.
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
// An interrupted run says only that as much is needed at least. So it takes part where it
// took more than the quantile of the complete runs, and never lowers the estimate.
//
// The estimate's Mean is of the complete runs alone. Not their median: where a few runs take much
// more than the others, a day of many runs takes more than their medians come to.
func Learn(samples []Sample) Estimate {
	e := learn(samples, quantile)
	if e.Source == Learned {
		e.Most = Most(samples).Amounts
		complete := slices.DeleteFunc(slices.Clone(samples), func(s Sample) bool { return !s.Complete })
		for _, most := range e.Amounts {
			if a := mean(complete[:e.Runs], most.Operation); a.Calls > 0 || a.Units > 0 {
				e.Mean = append(e.Mean, Amount{a.Operation, min(a.Units, most.Units), min(a.Calls, most.Calls)})
			}
		}
	}
	return e
}

// mean is what complete runs took of an operation in the mean, rounded. Where they cannot tell it
// from a whole number of calls, it is that: 31 calls in six runs are five a run, and a limit that
// suffices for five is not short.
func mean(complete []Sample, operation string) Amount {
	var units, calls, squares float64
	for _, s := range complete {
		for _, a := range s.Took {
			if a.Operation == operation {
				units, calls, squares = units+float64(a.Units), calls+float64(a.Calls), squares+float64(a.Calls)*float64(a.Calls)
			}
		}
	}
	n := float64(len(complete))
	whole := math.Round(calls / n)
	off, variance := calls/n-whole, (squares-calls*calls/n)/(n-1)
	if whole > 0 && off*off <= deviations*deviations*variance/n {
		units *= n * whole / calls
	}
	return Amount{operation, int64(math.Round(units / n)), int64(whole)}
}

// deviations is how many standard deviations a mean may be from what it is taken for.
const deviations = 2

// Most is Learn with the most that one of these runs took, in place of the quantile: what the
// next run may take.
func Most(samples []Sample) Estimate { return learn(samples, slices.Max[[]int64]) }

// learn is Learn with the function that represents several values by one.
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

// usual represents by one number what an operation took, in units or in calls.
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
