// Package jobs runs fetch jobs and command jobs on their schedules and stops
// them cleanly when their budget is spent.
//
// A job has a schedule and regions. Each tick of the schedule starts a pass;
// each region of a pass is a run. A fetch job's charges the budget before every
// page it fetches; a command job's is a program, which charges for itself and
// says by exit code 75 that the units are gone. Nothing sleeps for hours: a run
// that does not fit ends as [Exhausted], the regions after it are not started,
// and the next pass begins with the first of them.
//
// Any number of daemons may share a [State]. What becomes of a tick (it is run,
// skipped, missed, or waits) is decided in one place, as a step on the job's
// document, which is swapped by its version: of several daemons one is first. A
// pass holds a claim, which it renews; one that is silent is fenced off in its
// budget and recorded as [Lost]. So every tick ends in one [Record].
//
// Use [Load] to read the job tables of a configuration, [New] to make a
// [Runner] of them on a [State], and then one of its verbs: [Runner.Run] is
// the daemon, which follows the schedules until it is drained; [Runner.Reload]
// gives it other jobs; [Runner.Once] runs one pass of each job and returns what
// became of them. [Look], [Daemons], [History], [Trigger], [TakeBack], [CancelPasses],
// [SetPause], [EndPause] and [Forget] are for whoever looks after jobs, from any
// machine. [Job.Next] tells when a job ticks next without running anything.
package jobs
