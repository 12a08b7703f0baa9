package view

import (
	"fmt"
	"strings"

	"github.com/quotactl/quotactl/internal/answer"
)

// Doctor shows what doctor has found, a line for each check and one for each advice.
func Doctor(d answer.Doctor) string {
	var b strings.Builder
	b.WriteString(d.Store + "\n")
	for _, f := range d.Checks {
		fmt.Fprintf(&b, "  %-7s  %s: %s\n", f.Level, f.Check, f.Says)
		if f.Advice != "" {
			fmt.Fprintf(&b, "  %-7s  -> %s\n", "", f.Advice)
		}
	}
	return b.String()
}
