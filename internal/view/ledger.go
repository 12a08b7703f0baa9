package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/screen"
)

// History is who spent what since an hour.
func History(on screen.Screen, h answer.History) string {
	spent, denied := h.By != string(budget.ByLimit), h.Total.Refused != 0 || h.Total.Waited != 0
	heads := []string{strings.ToUpper(h.By)}
	if spent {
		heads = append(heads, ">UNITS", ">PART", ">CALLS")
	}
	if denied || !spent {
		heads = append(heads, ">REFUSED", ">WAITED")
	}
	t := on.Table(heads...)
	for _, row := range append(h.Rows, h.Total) {
		cells := []string{"total"}
		if row.Name != nil {
			cells[0] = groupText(h.By, *row.Name)
		}
		if spent {
			cells = append(cells, on.Number(row.Units), fmt.Sprintf("%.1f%%", 100**row.Part), on.Number(row.Calls))
		}
		if denied || !spent {
			cells = append(cells, on.Number(row.Refused), on.Number(row.Waited))
		}
		t.Add(cells...)
	}
	heading := h.Budget
	if h.Job != "" {
		heading += ", job " + h.Job
	}
	heading += ", since " + on.Time(time.Time(h.From))
	if h.Timezone != "UTC" {
		heading += ", in " + h.Timezone
	}
	out := on.Wrap("", heading) + t.String()
	for _, row := range h.Beside {
		out += on.Wrap("", fmt.Sprintf("beside the total: %s %s", *row.Name, on.Number(row.Units)))
	}
	if since := time.Time(h.Since); !since.IsZero() {
		out += on.Wrap("", "The history begins at "+on.Time(since)+".")
	}
	return out
}

// groupText is how a table names a group.
func groupText(by, name string) string {
	if name == "" {
		return "-"
	}
	if at, err := time.Parse(time.RFC3339, name); err == nil && by == string(budget.ByHour) {
		return at.Format("2006-01-02 15:04Z07:00")
	}
	return name
}

// Ledger is who spent what the ledger holds, and what each share of the limits has used.
func Ledger(on screen.Screen, s budget.Spent, limits []budget.LimitStatus) string {
	head := map[budget.GroupBy]string{budget.ByOperation: "OPERATION", budget.ByJob: "JOB", budget.ByRegion: "REGION", budget.ByRun: "RUN"}[s.By]
	heads := []string{head, ">UNITS", ">PART", ">CALLS", ">OPEN"}
	if s.Total.Observed > 0 {
		heads = append(heads, ">WOULD REFUSE")
	}
	t := on.Table(heads...)
	add := func(name string, row budget.SpentRow) {
		cells := []string{name, on.Number(row.Units), fmt.Sprintf("%.1f%%", 100*answer.Part(row, s.Total)), on.Number(row.Calls), on.Number(row.Open)}
		if s.Total.Observed > 0 {
			cells = append(cells, on.Number(row.Observed))
		}
		t.Add(cells...)
	}
	for _, row := range s.Rows {
		if row.Name == "" {
			row.Name = "-"
		}
		add(row.Name, row)
	}
	add("total", s.Total)
	over := "the whole ledger"
	if !s.From.IsZero() {
		over = "since " + on.Time(s.From)
	}
	out := on.Wrap("", s.Budget+", "+over) + t.String()
	if !s.Since.IsZero() {
		out += on.Wrap("", "Charges up to "+on.Time(s.Since)+" no longer count and are not included.")
	}
	return out + shareTable(on, limits)
}

// shareTable has a line for each share of each limit; empty: no limit is divided.
func shareTable(on screen.Screen, limits []budget.LimitStatus) string {
	t := on.Table("SHARE", "LIMIT", ">GUARANTEED", ">IN FORCE", ">USED", ">KEPT", ">BORROWED")
	divided := false
	for _, l := range limits {
		for _, s := range l.Shares {
			divided = true
			t.Add(s.Name, l.Name, on.Number(s.Guarantee), on.Number(s.InForce), on.Number(s.Used), on.Number(s.Kept), on.Number(s.Borrowed))
		}
	}
	if !divided {
		return ""
	}
	return "\n" + t.String()
}
