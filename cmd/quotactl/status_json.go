package main

import (
	"encoding/json"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// statusAnswer is the JSON answer of status.
type statusAnswer struct {
	At      instant      `json:"at"`
	Store   string       `json:"store"`
	Budgets []budgetJSON `json:"budgets"`
	Jobs    []jobJSON    `json:"jobs"`
}

type budgetJSON struct {
	Budget string `json:"budget"`
	// Remaining is null when no limit that counts units covers every operation.
	Remaining   *int64      `json:"remaining"`
	LockedUntil *instant    `json:"locked_until"`
	Limits      []limitJSON `json:"limits"`
}

type limitJSON struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	// Quota and Headroom are null for a cap of our own.
	Quota     *int64 `json:"quota"`
	Headroom  *int64 `json:"headroom"`
	Limit     int64  `json:"limit"`
	Used      int64  `json:"used"`
	Remaining int64  `json:"remaining"`
	Over      int64  `json:"over"`
	// Recovered is what of Used was recorded after the store had lost data.
	Recovered int64  `json:"recovered"`
	Counts    string `json:"counts"`
	// Since is null when all of the window is known.
	Since instant `json:"since"`
	// Operations are the patterns covered; none covers all.
	Operations []string `json:"operations"`
	// Window is the window's length, for a calendar that of its current period;
	// null for a bucket and for open reservations.
	Window      *seconds  `json:"window_seconds"`
	Precision   *seconds  `json:"precision_seconds,omitempty"`
	Guard       *seconds  `json:"guard_seconds,omitempty"`
	Refill      text      `json:"refill,omitempty"`
	Calendar    text      `json:"calendar"`
	Timezone    text      `json:"timezone"`
	LockedUntil *instant  `json:"locked_until"`
	NextReturn  *backJSON `json:"next_return"` // null when nothing is used
}

type backJSON struct {
	At    instant `json:"at"`
	Units int64   `json:"units"` // in what the limit counts
}

type jobJSON struct {
	Job    string          `json:"job"`
	Budget string          `json:"budget"`
	Next   instant         `json:"next"`
	Last   json.RawMessage `json:"last"` // null before the first pass
}

func newStatusAnswer(seen overview) statusAnswer {
	answer := statusAnswer{At: instant(seen.at), Store: seen.store, Budgets: []budgetJSON{}, Jobs: []jobJSON{}}
	for _, b := range seen.budgets {
		one := budgetJSON{Budget: b.Budget, Remaining: b.Remaining, Limits: []limitJSON{}}
		for _, l := range b.Limits {
			one.Limits = append(one.Limits, newLimitJSON(l, b.At))
		}
		answer.Budgets = append(answer.Budgets, one)
	}
	for _, job := range seen.jobs {
		answer.Jobs = append(answer.Jobs, jobJSON{Job: job.job, Budget: job.budget, Next: instant(job.next), Last: job.record})
	}
	return answer
}

func newLimitJSON(l budget.LimitStatus, at time.Time) limitJSON {
	out := limitJSON{
		Name: l.Name, Kind: string(l.Window.Kind), Limit: l.Limit.Limit, Used: l.Used, Remaining: l.Remaining,
		Over: l.Over, Recovered: l.Recovered, Counts: string(l.Counts), Since: instant(l.Since), Operations: append([]string{}, l.Operations...),
	}
	switch w := l.Window; w.Kind {
	case budget.Bucket:
		out.Refill = text(w.Refill.String())
	case budget.Concurrent:
	default:
		length := seconds(windowLength(w, at))
		out.Window, out.Precision, out.Guard = &length, span(w.Precision), span(w.Guard)
	}
	if l.Quota > 0 {
		out.Quota, out.Headroom = &l.Quota, &l.Headroom
	}
	if c := l.Window.Calendar; c != nil {
		out.Calendar, out.Timezone = text(c.Length()), text(c.Zone())
	}
	if !l.NextReturn.IsZero() {
		out.NextReturn = &backJSON{At: instant(l.NextReturn), Units: l.NextAmount}
	}
	return out
}

// span is a span of µs, nil for none.
func span(us int64) *seconds {
	if us == 0 {
		return nil
	}
	s := seconds(time.Duration(us) * time.Microsecond)
	return &s
}

// windowLength is the length of the window at an instant.
func windowLength(w budget.Window, at time.Time) time.Duration {
	if w.Calendar == nil {
		return time.Duration(w.Length) * time.Microsecond
	}
	start, next := w.Calendar.Period(at.UnixMicro())
	return time.Duration(next-start) * time.Microsecond
}
