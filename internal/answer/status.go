package answer

import (
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
)

// Status is the JSON answer of GET /v1/status.
type Status struct {
	At      Instant  `json:"at"` // on the store's clock; null when there is no budget
	Budgets []Budget `json:"budgets"`
}

// Budget is one budget in the answer of status.
type Budget struct {
	Budget string `json:"budget"`
	// Mode is observe if the upstream's is: then also a lock refuses nothing. It is left out
	// otherwise.
	Mode string `json:"mode,omitempty"`
	// Remaining is null when no enforced limit that counts units covers every operation.
	Remaining *int64 `json:"remaining"`
	// Tightest is the limit that says what the budget has left; null: it refuses nothing.
	Tightest    *Tightest `json:"tightest"`
	LockedUntil *Instant  `json:"locked_until"`
	LockedSince *Instant  `json:"locked_since,omitempty"`
	LockedWhy   string    `json:"locked_why,omitempty"`
	// RecoveringUntil: until then, after the store lost data, each host may spend only
	// its own part of the headroom. Otherwise left out.
	RecoveringUntil *Instant `json:"recovering_until,omitempty"`
	// OtherShares are the hosts that charged within the last hour by other shares than
	// these; left out if there are none.
	OtherShares []OtherShares `json:"other_shares,omitempty"`
	Limits      []Limit       `json:"limits"`
	// Refused is left out if nothing was refused or waited in the last day, and where that was
	// not looked for.
	Refused *Refused `json:"refused,omitempty"`
	// Plan is what the jobs' plan says; left out if there is none.
	Plan *BudgetForecast `json:"plan,omitempty"`
}

// Refused are the calls that were refused or waited.
type Refused struct {
	Since  Instant `json:"since"`
	Calls  int64   `json:"calls"`
	Waited int64   `json:"waited"`
	// Job and Limit are those of the most refused calls; null: none has the label, or the whole
	// budget was closed.
	Job   Text  `json:"job"`
	Limit Text  `json:"limit"`
	Most  int64 `json:"most"`
}

// Tightest is the limit with the smallest part left.
type Tightest struct {
	Limit    string  `json:"limit"`
	PartLeft float64 `json:"part_left"` // 0 to 1
	// Left is what no share has to itself, in what the limit counts; 0 while it is locked.
	Left        int64    `json:"left"`
	LockedUntil *Instant `json:"locked_until"` // by a lock of the limit or of the budget
}

// OtherShares is a host that divides the limits otherwise.
type OtherShares struct {
	Host string  `json:"host"`
	None bool    `json:"none"` // it divides no limit
	Last Instant `json:"last"`
}

// Limit is one limit of a budget.
type Limit struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	// Quota and Headroom are null for a cap of the user's own.
	Quota    *int64 `json:"quota"`
	Headroom *int64 `json:"headroom"`
	// Auto is true if the headroom is automatic; Parts is what it is made of.
	Auto  bool           `json:"auto,omitempty"`
	Parts *HeadroomParts `json:"headroom_parts,omitempty"`
	Limit int64          `json:"limit"`
	Used  int64          `json:"used"`
	// Held is what passes hold and have not spent; left out if that is nothing.
	Held      []Held `json:"held,omitempty"`
	Remaining int64  `json:"remaining"`
	Over      int64  `json:"over"`
	// Recovered is the part of Used that was recorded after the store had lost data.
	Recovered int64 `json:"recovered"`
	// Drift is the part of Used that the upstream reported and no charge explains.
	Drift  int64  `json:"drift"`
	Counts string `json:"counts"`
	// Mode is observe if the limit refuses nothing, else enforce.
	Mode string `json:"mode"`
	// Since is when the ledger's knowledge of the window begins; null: it knows all of it.
	Since Instant `json:"since"`
	// Operations are the patterns of covered operations; empty: all operations.
	Operations []string `json:"operations"`
	// Window is the length of the window, of a calendar's current period; null for a
	// token bucket and for open reservations.
	Window      *Seconds    `json:"window_seconds"`
	Precision   *Seconds    `json:"precision_seconds,omitempty"`
	Guard       *Seconds    `json:"guard_seconds,omitempty"`
	Refill      Text        `json:"refill,omitempty"`
	Calendar    Text        `json:"calendar"`
	Timezone    Text        `json:"timezone"`
	Starts      *Seconds    `json:"starts_seconds,omitempty"` // of a day or month, after midnight; left out for 0
	LockedUntil *Instant    `json:"locked_until"`
	LockedSince *Instant    `json:"locked_since,omitempty"`
	LockedWhy   string      `json:"locked_why,omitempty"`
	NextReturn  *NextReturn `json:"next_return"` // null when nothing is used
	// Rate is how fast the limit is spent; null: it has no rate, or too little was charged
	// lately. It is left out where it was not looked for, as by why.
	Rate **Rate `json:"rate,omitempty"`
	// Shares are left out for a limit that is not divided.
	Shares []LimitShare `json:"shares,omitempty"`
}

// Held is what a pass holds of a limit, or with a region one of its runs.
type Held struct {
	Job    string  `json:"job"`
	Region Text    `json:"region"`
	Amount int64   `json:"amount"` // in what the limit counts
	Until  Instant `json:"until"`  // unless its pass goes on
}

// HeadroomParts is what an automatic headroom is made of, in what the limit counts.
type HeadroomParts struct {
	Drift    int64 `json:"drift"`
	InFlight int64 `json:"in_flight"`
	Clock    int64 `json:"clock"`
	Outage   int64 `json:"outage"`
	Least    int64 `json:"least"`
	Most     int64 `json:"most"`
	// Known: the upstream has reported in three full periods; otherwise the headroom is
	// Most. Periods is in how many it has, up to three.
	Known   bool `json:"known"`
	Periods int  `json:"periods"`
}

// LimitShare is what one share of a limit has used, in what the limit counts.
type LimitShare struct {
	Share     string   `json:"share"`
	Jobs      []string `json:"jobs"`
	Guarantee int64    `json:"guarantee"`
	// InForce is the guarantee now: 0 once it has lapsed.
	InForce int64 `json:"in_force"`
	Used    int64 `json:"used"`
	// Kept is what others may not take, and Borrowed what was used beyond InForce.
	Kept     int64    `json:"kept"`
	Borrowed int64    `json:"borrowed"`
	Lapse    *Seconds `json:"lapse_seconds,omitempty"`
	// ByPlan: the guarantee lapses as the jobs need less.
	ByPlan bool `json:"lapse_by_plan,omitempty"`
	// LapsesAt is when the guarantee lapses, or has lapsed, in the present period.
	LapsesAt *Instant `json:"lapses_at,omitempty"`
}

// NextReturn is the next time that something comes back, and how much.
type NextReturn struct {
	At    Instant `json:"at"`
	Units int64   `json:"units"` // in what the limit counts
}

// NewBudget makes the answer for one budget, which was rated.
func NewBudget(status budget.Status) Budget {
	out := Budget{Budget: status.Budget, Remaining: status.Remaining, Limits: []Limit{}}
	if status.Observe {
		out.Mode = budget.ModeObserve
	}
	if t := status.Tightest(); t.Refuses() {
		out.Tightest = &Tightest{Limit: t.Name, PartLeft: t.Part(), Left: t.Left}
		if t.Lock != nil {
			out.Tightest.LockedUntil, _, _ = lockMembers(*t.Lock)
		}
	}
	if lock, locked := status.LockOf(""); locked {
		out.LockedUntil, out.LockedSince, out.LockedWhy = lockMembers(lock)
	}
	if !status.Recovering.IsZero() {
		until := Instant(status.Recovering)
		out.RecoveringUntil = &until
	}
	for _, o := range status.OtherShares {
		out.OtherShares = append(out.OtherShares, OtherShares{o.Host, o.None, Instant(o.Last)})
	}
	if d := status.Denied; d.Refused > 0 || d.Waited > 0 {
		out.Refused = &Refused{Instant(d.Since), d.Refused, d.Waited, Text(d.Job), Text(d.Limit), d.Most}
	}
	for _, l := range status.Limits {
		one, rate := newLimit(l, status.At), newRate(l.Rate)
		one.Rate = &rate
		if lock, locked := status.LockOf(l.Name); locked {
			one.LockedUntil, one.LockedSince, one.LockedWhy = lockMembers(lock)
		}
		out.Limits = append(out.Limits, one)
	}
	return out
}

func lockMembers(l budget.Lock) (until, since *Instant, why string) {
	end, begin := Instant(l.Until), Instant(l.Since)
	return &end, &begin, l.Why
}

func newLimit(l budget.LimitStatus, at time.Time) Limit {
	out := Limit{
		Name: l.Name, Kind: string(l.Window.Kind), Limit: l.Limit.Limit, Used: l.Used, Remaining: l.Remaining,
		Over: l.Over, Recovered: l.Recovered, Drift: l.Drift, Counts: string(l.Counts), Mode: budget.ModeText(l.Observe), Since: Instant(l.Since), Operations: append([]string{}, l.Operations...),
	}
	switch w := l.Window; w.Kind {
	case limit.Bucket:
		out.Refill = Text(w.Refill.String())
	case limit.Concurrent:
	default:
		length := Seconds(WindowLength(w, at))
		out.Window, out.Precision, out.Guard = &length, span(w.Precision), span(w.Guard)
	}
	if l.Quota > 0 {
		out.Quota, out.Headroom = &l.Quota, &l.Headroom
	}
	if p := l.Parts; p != nil {
		out.Auto, out.Parts = true, &HeadroomParts{p.Drift, p.InFlight, p.Clock, p.Outage, p.Least, p.Most, p.Known, p.Periods}
	}
	if c := l.Window.Calendar; c != nil {
		out.Calendar, out.Timezone, out.Starts = Text(c.Length()), Text(c.Zone()), span(c.Starts().Microseconds())
	}
	if !l.NextReturn.IsZero() {
		out.NextReturn = &NextReturn{At: Instant(l.NextReturn), Units: l.NextAmount}
	}
	for _, h := range l.Held {
		out.Held = append(out.Held, Held{h.Job, Text(h.Region), h.Amount, Instant(h.Until)})
	}
	out.Shares = newShares(l)
	return out
}

func newShares(l budget.LimitStatus) (list []LimitShare) {
	for _, s := range l.Shares {
		one := LimitShare{
			Share: s.Name, Jobs: s.Jobs, Guarantee: s.Guarantee, InForce: s.InForce, Used: s.Used, Kept: s.Kept, Borrowed: s.Borrowed, Lapse: span(s.Lapse), ByPlan: s.Plan,
		}
		if !s.LapsesAt.IsZero() {
			at := Instant(s.LapsesAt)
			one.LapsesAt = &at
		}
		list = append(list, one)
	}
	return list
}

// span converts µs; nil for 0.
func span(us int64) *Seconds {
	if us == 0 {
		return nil
	}
	s := Seconds(time.Duration(us) * time.Microsecond)
	return &s
}

// WindowLength is the length of a window, of a calendar's period at that instant.
func WindowLength(w limit.Window, at time.Time) time.Duration {
	if w.Calendar == nil {
		return time.Duration(w.Length) * time.Microsecond
	}
	start, next := w.Calendar.Period(at.UnixMicro())
	return time.Duration(next-start) * time.Microsecond
}
