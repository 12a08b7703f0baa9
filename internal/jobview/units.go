package jobview

import (
	"github.com/quotactl/quotactl/internal/screen"
	"github.com/quotactl/quotactl/internal/view"
)

// number is what was charged, for a column.
func number(on screen.Screen, units int64, unknown bool) string {
	if unknown {
		return "unknown"
	}
	return on.Number(units)
}

// amount is what was charged, for a sentence.
func amount(units int64, unknown bool) string {
	if unknown {
		return "units not known"
	}
	return view.Plural(int(units), "unit")
}
