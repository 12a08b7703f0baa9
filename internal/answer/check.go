package answer

import (
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/jobs"
)

// Checked is the JSON answer of check.
type Checked struct {
	Errors     []fault     `json:"errors"`
	Warnings   []fault     `json:"warnings"`
	Guarantees []Guarantee `json:"guarantees,omitempty"`
}

// fault is an error or a warning.
type fault struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Message string `json:"message"`
}

// NewCheck makes the answer of check. Without errors it has what the jobs are guaranteed;
// else cfg and list may be nil.
func NewCheck(cfg *config.Config, list []*jobs.Job, errors, warnings config.Errors) Checked {
	out := Checked{Errors: newFaults(errors), Warnings: newFaults(warnings)}
	if len(errors) == 0 {
		out.Guarantees = Guarantees(cfg, list)
	}
	return out
}

func newFaults(list config.Errors) []fault {
	out := make([]fault, len(list))
	for i, e := range list {
		out[i] = fault(e)
	}
	return out
}
