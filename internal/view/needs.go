package view

import (
	"fmt"

	"github.com/quotactl/quotactl/jobs/needs"
)

// Needs is how many units a run or a pass is expected to take, and where that comes from:
// "8 configured", "8 learned", "at most 8" or "unknown".
func Needs(e needs.Estimate) string {
	units, known := e.Units()
	switch {
	case !known:
		return string(needs.Unknown)
	case e.Source == needs.Bound:
		return fmt.Sprintf("at most %d", units)
	}
	return fmt.Sprintf("%d %s", units, e.Source)
}
