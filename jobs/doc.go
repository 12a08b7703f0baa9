// Package jobs runs fetch jobs and command jobs on their schedules and stops them cleanly
// when their budget is exhausted.
//
// A job has a schedule and regions. Each tick of the schedule starts a pass; each region
// of a pass is a run. A fetch job charges the budget before every page it fetches. A
// command job runs a program, which charges for itself and exits with code 75 when its
// budget is exhausted. Nothing sleeps for hours: a run that does not fit ends as
// [Exhausted], the regions after it are not started, and the next pass begins with it, then
// with those.
//
// Any number of daemons may share a [State]. One place decides what happens to a tick (it
// is run, skipped, missed, or waits): a step on the job's document, which is swapped by
// its version, so that only one of several daemons succeeds. A pass holds a claim, which
// it renews. If it stops renewing, a daemon fences it off from its budget and records it
// as [Lost]. So every tick ends up in one [Record].
//
// Use [Load] to read the job tables of a configuration and [New] to make a [Runner] of
// them on a [State]. [Runner.Run] is the daemon: it follows the schedules until it is
// drained. [Runner.Reload] gives it a new list of jobs. [Runner.Once] runs one pass of
// each job and returns the results. [Look], [Daemons], [History], [Trigger], [TakeBack],
// [CancelPasses], [SetPause], [EndPause] and [Forget] are for operators and work from any
// machine. [Job.Next] says when a job ticks next, and [ReadNeeds] what its runs are
// expected to take, without running anything.
package jobs
