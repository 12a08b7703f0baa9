package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/answer"
)

// write shows the overview as tables.
func (o overview) write(w io.Writer) error {
	var parts []string
	for _, b := range o.budgets {
		parts = append(parts, budgetText(b))
	}
	if len(o.jobs) > 0 {
		parts = append(parts, jobTable(o.jobs).String())
	}
	return writeText(w, strings.Join(parts, "\n"))
}

// budgetText is a budget's name, its limits, and what is to be said of them.
func budgetText(b budget.Status) string {
	heading := b.Budget
	if b.Remaining != nil {
		heading += fmt.Sprintf(": %d units left", *b.Remaining)
	}
	shown := slices.DeleteFunc(slices.Clone(b.Limits), func(l budget.LimitStatus) bool { return strings.Contains(l.Name, ":") && l.Used == 0 })
	out := wrap("", heading)
	if lock, locked := b.LockOf(""); locked {
		out += wrap("  ", lockText(lock))
	}
	if !b.Recovering.IsZero() {
		out += wrap("  ", "recovering until "+showTime(b.Recovering)+": the store has lost data; until all hosts have reported, each may spend only its part of the headroom")
	}
	out += limitTable(shown).String()
	if left := len(b.Limits) - len(shown); left > 0 {
		out += wrap("  ", fmt.Sprintf("%s of one operation each with nothing used", plural(left, "limit")))
	}
	for _, l := range b.Limits {
		list := notes(l)
		if lock, locked := b.LockOf(l.Name); locked {
			list = append([]string{lockText(lock)}, list...)
		}
		for _, note := range list {
			out += wrap("  ", l.Name+": "+note)
		}
	}
	return out
}

// lockText describes a lock.
func lockText(l budget.Lock) string {
	text := "locked until " + showTime(l.Until)
	if l.Why != "" {
		text += ": " + l.Why
	}
	return text
}

// limitTable has a column for debt only if there is any, and one for what is counted only
// if some limit counts calls.
func limitTable(limits []budget.LimitStatus) *table {
	indebted, callsToo := false, false
	for _, l := range limits {
		indebted = indebted || l.Over > 0
		callsToo = callsToo || l.Counts == limit.CountCalls
	}
	heads := []string{"LIMIT", "KIND"}
	if callsToo {
		heads = append(heads, "COUNTS")
	}
	heads = append(heads, ">USED", ">LIMIT", ">LEFT")
	if indebted {
		heads = append(heads, ">OVER")
	}
	t := newTable(append(heads, "NEXT RETURN")...)
	for _, l := range limits {
		row := []string{l.Name, kindText(l.Window)}
		if callsToo {
			row = append(row, string(l.Counts))
		}
		row = append(row, number(l.Used), number(l.Limit.Limit), number(l.Remaining))
		if indebted {
			row = append(row, number(l.Over))
		}
		t.add(append(row, returnText(l))...)
	}
	return t
}

// notes is what the table has no room for.
func notes(l budget.LimitStatus) []string {
	var list []string
	if l.Over > 0 {
		list = append(list, fmt.Sprintf("over its limit by %d; calls are refused until that is gone", l.Over))
	}
	if l.Recovered > 0 {
		list = append(list, fmt.Sprintf("the store lost charges; %s of what is used stand for them", number(l.Recovered)))
	}
	if l.Drift > 0 {
		list = append(list, fmt.Sprintf("the upstream counts %s more than was charged", number(l.Drift)))
	}
	if l.Observe {
		list = append(list, "only observes: it refuses nothing")
	}
	if !l.Since.IsZero() {
		list = append(list, "knows what was charged since "+showTime(l.Since))
	}
	return list
}

// kindText is "rolling 24h" or "calendar day".
func kindText(w limit.Window) string {
	text := func(us int64) string { return limit.SpanText(time.Duration(us) * time.Microsecond) }
	switch {
	case w.Kind == limit.Bucket:
		return "bucket " + w.Refill.String()
	case w.Kind == limit.Concurrent:
		return "open at once"
	case w.Guard > 0:
		return "calendar " + w.Calendar.Length() + " + " + text(w.Guard)
	case w.Calendar != nil:
		return "calendar " + w.Calendar.Length()
	case w.Precision > 0:
		return "rolling " + text(w.Length) + " in " + text(w.Precision)
	}
	return "rolling " + text(w.Length)
}

func returnText(l budget.LimitStatus) string {
	if l.NextReturn.IsZero() {
		return "-"
	}
	return fmt.Sprintf("%d at %s", l.NextAmount, showTime(l.NextReturn))
}

// jobTable has a row for each job. The pass under way, and who paused the job, are
// below it.
func jobTable(list []answer.Job) *table {
	t := newTable("JOB", "BUDGET", "LAST PASS", "NEXT PASS")
	for _, job := range list {
		last, next := "-", showTime(job.NextTick)
		if job.LastPass != nil {
			last = fmt.Sprintf("%s %s", showTime(job.LastPass.Tick.Time), job.LastPass.Outcome)
		}
		if job.Pause != nil {
			next = "paused"
		}
		t.add(job.Name, job.Budget, last, next)
		for _, note := range nowNotes(job) {
			t.below("", note)
		}
	}
	return t
}
