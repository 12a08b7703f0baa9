package answer

import (
	"time"

	"github.com/quotactl/quotactl/budget"
)

// Why is the JSON answer of why.
type Why struct {
	Budget    string  `json:"budget"`
	Operation string  `json:"operation"`
	Job       Text    `json:"job"`
	At        Instant `json:"at"` // on the store's clock
	Units     int64   `json:"units"`
	// Allowed is whether the call would be charged; else Reason and Message say why not.
	Allowed bool `json:"allowed"`
	Reason  Text `json:"reason"`
	Message Text `json:"message"`
	Limit   Text `json:"limit"` // that binds; null: no limit decided
	// RetryAt is the first instant at which the call fits if nothing else happens; null:
	// it fits now, or waiting does not help.
	RetryAt         Instant       `json:"retry_at"`
	RecoveringUntil Instant       `json:"recovering_until"`
	OtherShares     []OtherShares `json:"other_shares,omitempty"` // as in status
	Locks           []WhyLock     `json:"locks"`
	Limits          []WhyLimit    `json:"limits"`
	// ChangedMeanwhile: the ledger changed faster than it could be read; what is said may be
	// of different instants.
	ChangedMeanwhile bool `json:"changed_meanwhile"`
}

// WhyLock is a lock on the budget, or on a limit that covers the operation.
type WhyLock struct {
	Limit Text    `json:"limit"` // null: the whole budget
	Until Instant `json:"until"`
	Since Instant `json:"since"`
	Why   string  `json:"why"`
}

// WhyLimit is a limit that covers the operation, in what it counts.
type WhyLimit struct {
	Limit    Limit `json:"limit"` // as in status
	Needs    int64 `json:"needs"`
	Floor    int64 `json:"floor"`     // what must remain after the call
	FloorJob Text  `json:"floor_job"` // the job that says so; null: the call, or there is no floor
	Share    Text  `json:"share"`     // the call's own; null: none
	// KeptForOthers is what other shares are guaranteed and have not used.
	KeptForOthers []KeptFor `json:"kept_for_others"`
	// Available is how much the call's job may take now.
	Available int64 `json:"available"`
	// Short is how much too little there is for the call.
	Short int64 `json:"short"`
	// KeptAfterReset is what other shares are guaranteed in the next period, if the call
	// counts there too and does not fit.
	KeptAfterReset []KeptFor `json:"kept_after_reset"`
	// Each list has at most budget.WhyListed lines; its rest sums up the others, null: there
	// are none. UsedBy and Returns with their rests add up to used; for a bucket they are empty.
	UsedBy      []UsedBy     `json:"used_by"` // the greatest first
	UsedByRest  *Rest        `json:"used_by_rest"`
	Open        []Open       `json:"open"` // reservations, the first to end before others
	OpenRest    *Rest        `json:"open_rest"`
	Returns     []NextReturn `json:"returns"` // in their order
	ReturnsRest *Rest        `json:"returns_rest"`
}

// Rest is what a list leaves out.
type Rest struct {
	Count int64   `json:"count"` // of lines; of what returns, of charges
	Units int64   `json:"units"` // in what the limit counts
	Last  Instant `json:"last"`  // the latest instant; null: the list has none
}

func rest(r budget.Rest) *Rest {
	if r == (budget.Rest{}) {
		return nil
	}
	return &Rest{r.Count, r.Amount, Instant(r.Last)}
}

// KeptFor is what a limit keeps for a share.
type KeptFor struct {
	Share string `json:"share"`
	Units int64  `json:"units"` // in what the limit counts
}

// UsedBy is who used how much.
type UsedBy struct {
	// By is job, unlabelled, drift, recovered or meanwhile.
	By    string `json:"by"`
	Job   Text   `json:"job"`
	Share Text   `json:"share"`
	Used  int64  `json:"used"`
}

// Open is a reservation that was neither settled nor released.
type Open struct {
	ID        string  `json:"id"`
	Operation string  `json:"operation"`
	Job       Text    `json:"job"`
	Region    Text    `json:"region"`
	Run       Text    `json:"run"`
	Held      int64   `json:"held"` // in what the limit counts
	Until     Instant `json:"until"`
}

// NewWhy makes the answer.
func NewWhy(w budget.Why) Why {
	out := Why{
		Budget: w.Budget, Operation: w.Call.Operation, Job: Text(w.Call.Labels.Job), At: Instant(w.At), Units: w.Units,
		Allowed: w.Refused == nil, RecoveringUntil: Instant(w.Recovering), ChangedMeanwhile: w.Meanwhile, Locks: []WhyLock{}, Limits: []WhyLimit{},
	}
	if r := w.Refused; r != nil {
		out.Reason, out.Message, out.Limit, out.RetryAt = Text(Reason(r)), Text(r.Error()), Text(r.Limit), Instant(r.RetryAt)
	}
	status := budget.Status{At: w.At, Locks: w.Locks, OtherShares: w.OtherShares}
	for _, l := range w.Limits {
		status.Limits = append(status.Limits, l.LimitStatus)
	}
	shown := NewBudget(status)
	out.OtherShares = shown.OtherShares
	for i, l := range w.Limits {
		out.Limits = append(out.Limits, newWhyLimit(shown.Limits[i], l))
	}
	for _, l := range w.Locks {
		out.Locks = append(out.Locks, newWhyLock(l))
	}
	return out
}

func newWhyLimit(shown Limit, l budget.WhyLimit) WhyLimit {
	out := WhyLimit{
		Limit: shown, Needs: l.Needs, Floor: l.Floor, FloorJob: Text(l.FloorJob), Share: Text(l.Share), Available: l.Available, Short: l.Short,
		KeptForOthers: keptFor(l.Kept), KeptAfterReset: keptFor(l.KeptAfterReset), UsedBy: []UsedBy{}, Open: []Open{}, Returns: []NextReturn{},
		UsedByRest: rest(l.ByRest), OpenRest: rest(l.OpenRest), ReturnsRest: rest(l.ReturnsRest),
	}
	for _, by := range l.By {
		out.UsedBy = append(out.UsedBy, UsedBy{by.Kind, Text(by.Job), Text(by.Share), by.Used})
	}
	for _, o := range l.Open {
		out.Open = append(out.Open, Open{o.ID, o.Operation, Text(o.Labels.Job), Text(o.Labels.Region), Text(o.Labels.Run), o.Held, Instant(o.Until)})
	}
	for _, r := range l.Returns {
		out.Returns = append(out.Returns, NextReturn{Instant(r.At), r.Amount})
	}
	return out
}

func newWhyLock(l budget.Lock) WhyLock {
	return WhyLock{Text(l.Limit), Instant(l.Until), Instant(l.Since), l.Why}
}

// Lock is the lock as a status has it.
func (l WhyLock) Lock() budget.Lock {
	return budget.Lock{Limit: string(l.Limit), Until: time.Time(l.Until), Since: time.Time(l.Since), Why: l.Why}
}

func keptFor(list []budget.Kept) []KeptFor {
	out := []KeptFor{}
	for _, k := range list {
		out = append(out, KeptFor{k.Share, k.Units})
	}
	return out
}
