package view

import (
	"time"

	"github.com/quotactl/quotactl/internal/screen"

	"github.com/quotactl/quotactl/budget"
)

// Receipt says what was charged, or would fit. A lease above 0 is that of a reservation.
func Receipt(on screen.Screen, r budget.Receipt, lease time.Duration, dryRun bool) string {
	charged := Plural(int(r.Units), "unit")
	if dryRun {
		charged = "none; " + on.Number(r.Units) + " would fit"
	}
	if lease > 0 && !dryRun && !r.Replayed {
		charged += " until " + on.Time(r.At.Add(lease))
	}
	switch {
	case r.Replayed && r.Ended != "":
		charged += ", charged before under this id, and " + string(r.Ended)
	case r.Replayed:
		charged += ", charged before under this id"
	}
	if r.Source == budget.SourceAllowance {
		charged += ", by this host's allowance"
	}
	t := on.Table("BUDGET", "OPERATION", "CHARGED", ">LEFT", "IN LIMIT", "ID")
	t.Add(r.Budget, r.Operation, charged, on.Number(r.Remaining), r.Limit, r.ID)
	return t.String()
}
