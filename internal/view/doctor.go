package view

import (
	"fmt"
	"strings"

	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/screen"
)

// Doctor shows what doctor has found, a line for each check and one for each advice.
func Doctor(on screen.Screen, d answer.Doctor) string {
	var b strings.Builder
	b.WriteString(d.Store + "\n")
	for _, f := range d.Checks {
		b.WriteString("  " + on.Outcome(fmt.Sprintf("%-7s", f.Level)) + fmt.Sprintf("  %s: %s\n", f.Check, f.Says))
		if f.Advice != "" {
			fmt.Fprintf(&b, "  %-7s  -> %s\n", "", f.Advice)
		}
	}
	return b.String()
}
