package answer

import "github.com/quotactl/quotactl/jobs"

// Trigger is the JSON answer of trigger.
type Trigger struct {
	Job     string       `json:"job"`
	Request jobs.Request `json:"request"`
	// Daemons are those that live; none: the request waits until one is started.
	Daemons []jobs.Daemon `json:"daemons"`
	// Pass is its record; null when it was not waited for, or had not ended by then.
	Pass *jobs.Record `json:"pass"`
}

// Pause is the JSON answer of pause and resume.
type Pause struct {
	Job    string      `json:"job"`
	Paused *jobs.Pause `json:"paused"` // null: it is not
	Before *jobs.Pause `json:"before"` // the pause before; null: there was no pause
	// Dropped are the passes that waited for units, and do not go on.
	Dropped []jobs.DeferredPass `json:"dropped,omitempty"`
}

// Cancel is the JSON answer of cancel.
type Cancel struct {
	Job string `json:"job"`
	// Cancelled are the passes that are to end; none: nothing was under way.
	Cancelled []jobs.ActivePass `json:"cancelled"`
	// Untold is why their daemons could not be notified; empty: they were.
	Untold string `json:"untold,omitempty"`
}
