package view

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/screen"
)

// The text shows the first lines of each list, and sums up the others: those that it leaves
// out itself, and the rest.
func TestWhyText(t *testing.T) {
	at := time.Date(2026, 11, 25, 5, 0, 0, 0, time.UTC)
	l := budget.WhyLimit{LimitStatus: budget.LimitStatus{Limit: limit.Limit{Name: "day", Limit: 5000, Counts: limit.CountUnits}, Used: 4000}, Available: 1000, Needs: 1}
	for i := range budget.WhyListed {
		l.By = append(l.By, budget.UsedBy{Kind: "job", Job: fmt.Sprint("j", i), Used: 10})
		l.Open = append(l.Open, budget.OpenReservation{ID: fmt.Sprint("r", i), Operation: "op", Held: 2, Until: at.Add(time.Duration(i) * time.Minute)})
		l.Returns = append(l.Returns, budget.Return{At: at.Add(time.Duration(i) * time.Minute), Amount: 3})
	}
	l.By = append(l.By, budget.UsedBy{Kind: "meanwhile", Used: -4})
	why := budget.Why{Budget: "up/key1", Call: budget.Call{Operation: "op"}, Units: 1, Limits: []budget.WhyLimit{l}, Meanwhile: true}
	said := func(lines ...string) {
		t.Helper()
		text := strings.Join(strings.Fields(Why(screen.Pipe(), why, false)), " ")
		for _, line := range lines {
			check.Equal(t, strings.Contains(text, line), true, "the text has", line, "in", text)
		}
	}
	said(
		"the ledger changed faster than it could be read: these numbers may be of different instants; ask again",
		"job j19 - 10 meanwhile - -4 and 80 more - 800",
		"op r4 holds 2 until 2026-11-25 05:04:00Z and 95 reservations more that are open, which hold 190",
		"3 at 2026-11-25 05:04:00Z, 285 more up to 2026-11-25 06:39:00Z",
	)
	why.Limits[0].ByRest = budget.Rest{Count: 9, Amount: 20}
	why.Limits[0].OpenRest = budget.Rest{Count: 1000, Amount: 1500, Last: at.Add(9 * time.Hour)}
	why.Limits[0].ReturnsRest = budget.Rest{Count: 1000, Amount: 2000, Last: at.Add(10 * time.Hour)}
	said("and 89 more - 820", "and 1095 reservations more that are open, which hold 1690", "2285 more up to 2026-11-25 15:00:00Z")
}
