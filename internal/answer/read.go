package answer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/headroom"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/rate"
	"github.com/quotactl/quotactl/jobs"
)

// UnmarshalJSON implements json.Unmarshaler: null is the zero time.
func (i *Instant) UnmarshalJSON(text []byte) error {
	var t time.Time
	if err := json.Unmarshal(text, &t); err != nil {
		return err
	}
	if *i = Instant(t); !t.IsZero() {
		*i = Instant(t.UTC())
	}
	return nil
}

// UnmarshalJSON implements json.Unmarshaler; the number is exact to a microsecond.
func (s *Seconds) UnmarshalJSON(text []byte) error {
	d, err := time.ParseDuration(string(text) + "s")
	if err != nil {
		return fmt.Errorf("%s is not a number of seconds", text)
	}
	*s = Seconds(d)
	return nil
}

// UnmarshalJSON implements json.Unmarshaler: null is the empty text.
func (t *Text) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, (*string)(t)) }

// Statuses are the budgets of the answer as they were read.
func (o Overview) Statuses() ([]budget.Status, error) {
	var list []budget.Status
	for _, b := range o.Budgets {
		one, err := b.status(time.Time(o.At))
		if err != nil {
			return nil, fmt.Errorf("budget %s: %w", b.Budget, err)
		}
		list = append(list, one)
	}
	return list, nil
}

// States are the jobs of the answer as they were read, without their schedules.
func (o Overview) States() ([]Job, error) {
	var list []Job
	for _, j := range o.Jobs {
		v := Job{
			Job: &jobs.Job{Name: j.Job, Budget: j.Budget}, NextTick: time.Time(j.Next),
			Overview: jobs.Overview{Last: j.Last, Active: j.Active, Pause: j.Paused, Deferred: j.Deferred},
		}
		var err error
		if string(j.Last) == "null" {
			v.Last = nil
		}
		if v.LastPass, err = ReadRecord(v.Last); err != nil {
			return nil, fmt.Errorf("job %s: the record of its last pass: %w", j.Job, err)
		}
		for at := range v.Active {
			if string(v.Active[at].Progress) == "null" {
				v.Active[at].Progress = nil
			}
			record, err := ReadRecord(v.Active[at].Progress)
			if err != nil {
				return nil, fmt.Errorf("job %s: the record of its pass under way: %w", j.Job, err)
			}
			v.Progress = append(v.Progress, record)
		}
		list = append(list, v)
	}
	return list, nil
}

// Ahead is the forecast of the answer; nil: it has none.
func (o Overview) Ahead() *Forecast {
	f := &Forecast{budgetsTold: map[string]*BudgetForecast{}, jobsTold: map[string]*JobForecast{}}
	count := map[string]int{}
	for _, j := range o.Jobs {
		if j.Plan != nil {
			f.jobsTold[j.Job] = j.Plan
			count[j.Budget]++
		}
	}
	for _, b := range o.Budgets {
		if b.Plan != nil {
			told := *b.Plan
			told.known = count[b.Budget] > len(told.Unknown)
			f.budgetsTold[b.Budget] = &told
		}
	}
	if len(f.budgetsTold) == 0 {
		return nil
	}
	return f
}

// status is the budget as it was read at an instant.
func (b Budget) status(at time.Time) (budget.Status, error) {
	s := budget.Status{Budget: b.Budget, At: at, Observe: b.Mode == budget.ModeObserve, Remaining: b.Remaining}
	lock := func(limit string, until, since *Instant, why string) {
		if until != nil {
			s.Locks = append(s.Locks, budget.Lock{Limit: limit, Until: time.Time(*until), Since: optional(since), Why: why})
		}
	}
	lock("", b.LockedUntil, b.LockedSince, b.LockedWhy)
	s.Recovering = optional(b.RecoveringUntil)
	for _, o := range b.OtherShares {
		s.OtherShares = append(s.OtherShares, budget.OtherShares{Host: o.Host, None: o.None, Last: time.Time(o.Last)})
	}
	if r := b.Refused; r != nil {
		s.Denied = budget.Denied{Since: time.Time(r.Since), Refused: r.Calls, Waited: r.Waited, Job: string(r.Job), Limit: string(r.Limit), Most: r.Most}
	}
	for _, l := range b.Limits {
		one, err := l.status()
		if err != nil {
			return s, fmt.Errorf("limit %s: %w", l.Name, err)
		}
		s.Limits = append(s.Limits, one)
		lock(l.Name, l.LockedUntil, l.LockedSince, l.LockedWhy)
	}
	return s, nil
}

func optional(i *Instant) time.Time {
	if i == nil {
		return time.Time{}
	}
	return time.Time(*i)
}

func (l Limit) status() (budget.LimitStatus, error) {
	window, err := l.window()
	if err != nil {
		return budget.LimitStatus{}, err
	}
	s := budget.LimitStatus{
		Limit: limit.Limit{
			Name: l.Name, Limit: l.Limit, Counts: limit.Counts(l.Counts), Window: window, Operations: l.Operations,
			Observe: l.Mode == budget.ModeText(true),
		},
		Used: l.Used, Remaining: l.Remaining, Over: l.Over, Recovered: l.Recovered, Drift: l.Drift, Since: time.Time(l.Since),
	}
	if (l.Quota == nil) != (l.Headroom == nil) {
		return s, errors.New("a quota and a headroom go together")
	}
	if l.Quota != nil {
		s.Quota, s.Headroom = *l.Quota, *l.Headroom
	}
	if l.NextReturn != nil {
		s.NextReturn, s.NextAmount = time.Time(l.NextReturn.At), l.NextReturn.Units
	}
	if p := l.Parts; p != nil {
		s.Parts = &headroom.Parts{Drift: p.Drift, InFlight: p.InFlight, Clock: p.Clock, Outage: p.Outage, Least: p.Least, Most: p.Most, Known: p.Known, Periods: p.Periods}
	}
	if l.Rate != nil && *l.Rate != nil {
		r := **l.Rate
		s.Rate = &rate.Rate{PerHour: r.PerHour, Charges: r.Charges, Since: time.Time(r.Since), EmptyAt: time.Time(r.EmptyAt), ResetsAt: time.Time(r.ResetsAt)}
	}
	for _, h := range l.Held {
		s.Held = append(s.Held, budget.Held{Job: h.Job, Region: string(h.Region), Amount: h.Amount, Until: time.Time(h.Until)})
	}
	for _, share := range l.Shares {
		one := budget.ShareStatus{
			Share:   limit.Share{Name: share.Share, Jobs: share.Jobs, Guarantee: share.Guarantee, Lapse: micros(share.Lapse), Plan: share.ByPlan},
			InForce: share.InForce, Used: share.Used, Kept: share.Kept, Borrowed: share.Borrowed, LapsesAt: optional(share.LapsesAt),
		}
		s.Shares = append(s.Shares, one)
	}
	return s, nil
}

func micros(s *Seconds) int64 {
	if s == nil {
		return 0
	}
	return time.Duration(*s).Microseconds()
}

// window is the limit's window.
func (l Limit) window() (limit.Window, error) {
	switch kind := limit.Kind(l.Kind); kind {
	case limit.Bucket:
		amount, period, _ := strings.Cut(string(l.Refill), "/")
		n, err := strconv.ParseInt(amount, 10, 64)
		if err != nil {
			return limit.Window{}, fmt.Errorf("refill %q: %w", l.Refill, err)
		}
		span, err := limit.ParseSpan(period)
		if err != nil {
			return limit.Window{}, fmt.Errorf("refill %q: %w", l.Refill, err)
		}
		refill, err := limit.NewRefill(n, span)
		return limit.BucketWindow(refill), err
	case limit.Concurrent:
		return limit.ConcurrentWindow(), nil
	case limit.CalendarKind:
		c, err := limit.NewCalendar(string(l.Calendar), string(l.Timezone), time.Duration(micros(l.Starts))*time.Microsecond)
		if err != nil {
			return limit.Window{}, err
		}
		w := limit.CalendarWindow(c)
		w.Guard = micros(l.Guard)
		return w, nil
	default:
		return limit.Window{Kind: kind, Length: micros(l.Window), Precision: micros(l.Precision)}, nil
	}
}
