package jobs

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/jobs/needs"
)

// Needs are what the runs of a job are expected to take, and where that comes from: the
// job's configured needs; else what the last complete runs of the region took
// ([needs.Learn]); else the price of the most pages that a fetch may ask for; else
// unknown. Only configured ones are looked for before a run ([Job.Needs]); passes hold them
// if their job says so, or when they go on after their units were gone.
type Needs struct {
	// Regions are those of the job, in its order.
	Regions []RegionNeeds

	bound []needs.Amount // of each run; nil: there is none
}

// RegionNeeds are the needs of a run.
type RegionNeeds struct {
	Region string // empty if the job names no regions
	needs.Estimate
	// Complete is how many complete runs its records have, also if these are too few to learn from: at most needs.MostRuns,
	// and 0 if the job's needs are configured.
	Complete int
}

// Run is what a run of a region takes; unknown if the job has no such region.
func (n Needs) Run(region string) needs.Estimate {
	at := slices.IndexFunc(n.Regions, func(r RegionNeeds) bool { return r.Region == region })
	if at < 0 {
		return needs.Estimate{Source: needs.Unknown}
	}
	return n.Regions[at].Estimate
}

// Pass is what a pass of these regions takes; nil means all. It is learned only if all of
// them are. If some are not, it is a bound where there is one, else unknown.
func (n Needs) Pass(regions []string) needs.Estimate {
	if regions == nil {
		for _, r := range n.Regions {
			regions = append(regions, r.Region)
		}
	}
	var list, most []needs.Estimate
	for _, region := range regions {
		list = append(list, n.Run(region))
		most = append(most, needs.Estimate{Source: needs.Bound, Amounts: n.bound})
	}
	sum := needs.Sum(list)
	if sum.Source == needs.Unknown && n.bound != nil {
		return needs.Sum(most)
	}
	return sum
}

// after is what the runs of a pass still take after its earlier parts: those that were cut
// go on from their checkpoints.
func (n Needs) after(j *Job, soFar Record) Needs {
	if j.Checkpoint == 0 {
		return n
	}
	n.Regions = slices.Clone(n.Regions)
	for i := range n.Regions {
		r := &n.Regions[i]
		for _, run := range soFar.Runs {
			if run.Region == r.Region && run.Reason == ReasonDeferred && !run.Started.IsZero() {
				r.Estimate = r.Less(run.Spent)
			}
		}
	}
	return n
}

// The bounds of what is read of a job to learn its needs: records, and among them those of
// passes with runs. Regions that ran too seldom for that are not learned.
const (
	maxNeedsRecords = 500
	maxNeedsPasses  = 2 * needs.MostRuns
	needsReaders    = 8 // jobs that are read at a time
)

// ReadNeeds says what the runs of jobs are expected to take, in the order of list. It
// reads records only of jobs without configured needs, mostly the newest 30 of each.
func ReadNeeds(ctx context.Context, in State, list []*Job) ([]Needs, error) {
	found, errs := readNeedsBy(ctx, in, list, needs.Learn)
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// readNeedsBy is ReadNeeds with another way to learn, and an error for each job.
func readNeedsBy(ctx context.Context, in State, list []*Job, learn func([]needs.Sample) needs.Estimate) ([]Needs, []error) {
	found, errs := make([]Needs, len(list)), make([]error, len(list))
	free := make(chan struct{}, needsReaders)
	var reading sync.WaitGroup
	for i, j := range list {
		free <- struct{}{}
		reading.Go(func() {
			defer func() { <-free }()
			found[i], errs[i] = j.readNeedsBy(ctx, in, learn)
		})
	}
	reading.Wait()
	return found, errs
}

// readNeeds is ReadNeeds of one job.
func (j *Job) readNeeds(ctx context.Context, in State) (Needs, error) {
	return j.readNeedsBy(ctx, in, needs.Learn)
}

// readNeedsBy is readNeeds with another way to learn.
func (j *Job) readNeedsBy(ctx context.Context, in State, learn func([]needs.Sample) needs.Estimate) (Needs, error) {
	var samples map[string][]needs.Sample
	if j.stated == nil {
		var err error
		if samples, err = j.samples(ctx, in); err != nil {
			return Needs{}, err
		}
	}
	n := Needs{bound: j.bound}
	for _, region := range j.Regions {
		e := learn(samples[region])
		switch {
		case j.stated != nil:
			e = needs.Estimate{Source: needs.Configured, Amounts: slices.Clone(j.stated)}
		case e.Source == needs.Unknown && j.bound != nil:
			e = needs.Estimate{Source: needs.Bound, Amounts: slices.Clone(j.bound)}
		}
		n.Regions = append(n.Regions, RegionNeeds{region, e, needs.Complete(samples[region])})
	}
	return n, nil
}

// samples reads what the last runs of each region took, the newest first.
func (j *Job) samples(ctx context.Context, in State) (map[string][]needs.Sample, error) {
	samples, missing := map[string][]needs.Sample{}, map[string]int{}
	for _, region := range j.Regions {
		missing[region] = needs.MostRuns
	}
	records, passes := 0, 0
	for pass, err := range past(ctx, in, []string{j.Name}, time.Time{}, needs.MostRuns) {
		if err != nil {
			return nil, err
		}
		if records++; len(pass.Runs) > 0 {
			passes++
		}
		for _, run := range pass.Runs {
			sample, ok := j.sample(run)
			if !ok || missing[run.Region] == 0 {
				continue
			}
			samples[run.Region] = append(samples[run.Region], sample)
			if sample.Complete {
				if missing[run.Region]--; missing[run.Region] == 0 {
					delete(missing, run.Region)
				}
			}
		}
		if len(missing) == 0 || records == maxNeedsRecords || passes == maxNeedsPasses {
			break
		}
	}
	return samples, nil
}

// sample is what can be learned from a run; false: nothing, because nothing is known of
// what it spent by operation, or because the job has changed since.
//
// A run that resumed another did only the rest, so it counts as if it had been cut. A
// command under whose label nothing was charged may have used another label.
func (j *Job) sample(run Run) (needs.Sample, bool) {
	complete := run.Outcome == Succeeded && !run.Resumed
	if j.StartedBy == StartedByCron && run.Outcome == Exhausted { // what it did after the refusal says nothing
		return needs.Sample{}, false
	}
	if run.Spent == nil || len(run.Spent) == 0 && (j.Fetch == nil || !complete) {
		return needs.Sample{}, false
	}
	foreign := func(a needs.Amount) bool { return j.Fetch != nil && a.Operation != j.Fetch.Operation }
	return needs.Sample{Complete: complete, Took: run.Spent}, !slices.ContainsFunc(run.Spent, foreign)
}

// foresee computes from the prices what the configured needs take, if there are any, and
// what a fetch takes at most.
func (j *Job) foresee(upstream config.Upstream, configured bool) {
	if configured {
		for operation, calls := range j.Needs {
			j.stated = append(j.stated, amount(upstream, operation, calls))
		}
		j.stated = needs.Together(j.stated)
	}
	if j.Fetch == nil || j.Fetch.Operation == "" {
		return
	}
	pages := j.Fetch.MaxPages
	if j.Fetch.NextParam == "" {
		pages = 1
	}
	if pages > 0 {
		j.bound = []needs.Amount{amount(upstream, j.Fetch.Operation, int64(pages))}
	}
}

// amount is what calls of an operation cost, 10^15 units at most.
func amount(upstream config.Upstream, operation string, calls int64) needs.Amount {
	each := price(upstream, operation)
	units := limit.MaxUnits
	if each == 0 || calls <= units/each {
		units = each * calls
	}
	return needs.Amount{Operation: operation, Units: units, Calls: calls}
}
