package jobs

import (
	"time"

	"github.com/quotactl/quotactl/budget/budgethttp"
)

// Observer is told what a [Runner] does, for metrics. Its methods must return at
// once and may be called by many goroutines.
type Observer interface {
	// Looked: the daemon has looked at its clock, as it does once a minute at
	// least while it lives.
	Looked()
	// TickStarted: a scheduled pass was started so late after its tick.
	TickStarted(job *Job, late time.Duration)
	// RunEnded: a run ended, or was not started.
	RunEnded(job *Job, region string, outcome Outcome)
	// TicksMissed: no daemon took so many ticks in time.
	TicksMissed(job *Job, ticks int)
	// PassEnded: a pass ended, or could not begin.
	PassEnded(job *Job, outcome Outcome)
	// ResponseUnread: something that a response to a job's request says could not be
	// read.
	ResponseUnread(job *Job, unread budgethttp.Unread)
}

// nobody is the Observer where none is given.
type nobody struct{}

func (nobody) Looked()                         {}
func (nobody) TickStarted(*Job, time.Duration) {}
func (nobody) TicksMissed(*Job, int)           {}
func (nobody) RunEnded(*Job, string, Outcome)  {}
func (nobody) PassEnded(*Job, Outcome)         {}

func (nobody) ResponseUnread(*Job, budgethttp.Unread) {}
