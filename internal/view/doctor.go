package view

import (
	"fmt"

	"github.com/quotactl/quotactl/internal/answer"
)

// Doctor is a line for each finding, and one for its advice.
func Doctor(d answer.Doctor) string {
	out := d.Store + "\n"
	for _, f := range d.Checks {
		out += fmt.Sprintf("  %-7s  %s: %s\n", f.Level, f.Check, f.Says)
		if f.Advice != "" {
			out += fmt.Sprintf("  %-7s  -> %s\n", "", f.Advice)
		}
	}
	return out
}
