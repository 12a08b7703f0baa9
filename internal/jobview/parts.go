package jobview

import (
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/screen"
	"github.com/quotactl/quotactl/jobs"
)

// What follows are the parts of a screen, for a page that arranges them otherwise.

// Waits say what of a job waits, what keeps it, and what is known of its daemons.
func Waits(on screen.Screen, v answer.Job) []string { return waitNotes(on, v) }

// Lacks says what the plan finds that a run lacks; empty: nothing.
func Lacks(on screen.Screen, r answer.NextRun) string { return lacks(on, r) }

// Began says why a pass began; empty for its schedule.
func Began(kind jobs.Kind, note string) string { return began(kind, note) }

// Held says which needs a job holds; empty for none.
func Held(h jobs.Hold) string { return heldNote(h) }
