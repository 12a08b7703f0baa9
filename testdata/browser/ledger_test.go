package browser

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/must"
)

// charged is a charge of the past.
type charged struct {
	At               time.Time
	Operation        string
	Units            int64
	Job, Region, Run string
}

const instant = "2006-01-02T15:04:05.000000Z"

// export is a file for quotactl import, with charges of the past and the history of the hours
// in which they were made.
func export(t testing.TB, budget string, now time.Time, charges []charged) string {
	t.Helper()
	var file strings.Builder
	to := json.NewEncoder(&file)
	line := func(members map[string]any) { must.Do(t, to.Encode(members)) }
	ledger := rand.Text()
	born := now
	for _, c := range charges {
		if c.At.Before(born) {
			born = c.At
		}
	}
	line(map[string]any{
		"quotactl_export": 4, "budget": budget, "export": rand.Text(), "ledger": ledger,
		"at": now.UTC().Format(instant), "since": born.UTC().Format(instant), "forgotten_up_to": nil, "not_in_history_up_to": nil,
	})
	type hour struct {
		at                     time.Time
		operation, job, region string
	}
	units, calls := map[hour]int64{}, map[hour]int64{}
	var hours []hour
	for _, c := range charges {
		h := hour{c.At.UTC().Truncate(time.Hour), c.Operation, c.Job, c.Region}
		if calls[h] == 0 {
			hours = append(hours, h)
		}
		units[h] += c.Units
		calls[h]++
	}
	for _, h := range hours {
		line(map[string]any{
			"id": ledger, "operation": h.operation, "state": "history", "units": units[h], "calls": calls[h],
			"at": h.at.Format(instant), "job": h.job, "region": h.region, "as_of": now.UTC().Format(instant),
		})
	}
	for n, c := range charges {
		line(map[string]any{
			"id": fmt.Sprintf("past-%d", n), "operation": c.Operation, "units": c.Units, "at": c.At.UTC().Format(instant),
			"job": c.Job, "region": c.Region, "run": c.Run,
		})
	}
	line(map[string]any{"rows": len(hours) + len(charges)})
	return file.String()
}
