package alert

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/jobs"
)

// LookEvery is how often each daemon looks at budgets and jobs.
const LookEvery = 5 * time.Second

const (
	// lookTakes bounds one look.
	lookTakes = 20 * time.Second
	// noteTakes bounds writing down what a look has seen: its own time, however long the look took.
	noteTakes = 10 * time.Second
	// mostRead is how many records of a job are read at once.
	mostRead = 16
)

// sight is what one look has seen.
type sight struct {
	at      int64 // µs, the store's clock
	facts   []fact
	starved []func(since int64) fact // by when the alert was first looked for
	// whole: everything could be read.
	whole bool
}

// look looks at everything that alerts tell of, and writes down what begins and ends.
func (w *Watcher) look(ctx context.Context) {
	now := w.o.Current()
	if len(now.Alerts) == 0 {
		return
	}
	looking, cancel := context.WithTimeout(ctx, lookTakes)
	defer cancel()
	names := make([]string, len(now.Alerts))
	for i, a := range now.Alerts {
		names[i] = documentOf(a.Name)
	}
	found, err := w.o.State.Jobs(looking, names)
	w.outage.saw(w, now.Alerts, err)
	if err != nil {
		return
	}
	before := maps.Clone(w.ended)
	seen := w.see(looking, now, found[0].Now)
	noting, cancel := context.WithTimeout(ctx, noteTakes)
	defer cancel()
	for i, a := range now.Alerts {
		err := w.note(noting, a, found[i], now, seen)
		if err == nil {
			continue
		}
		if w.ended = before; ctx.Err() == nil {
			w.o.Log.Warn("what an alert is to tell was not written down; the next look does it", "alert", a.Name, "error", err)
		}
	}
}

// see reads budgets and jobs.
func (w *Watcher) see(ctx context.Context, now Now, at int64) sight {
	s := sight{at: at, whole: true}
	var used []int64
	forJobs, forPlan := false, false
	for _, a := range now.Alerts {
		for _, on := range a.On {
			switch on.Kind {
			case kindUsed:
				used = append(used, on.Percent)
			case kindExhausted, kindFailed, kindLost, kindStarved, kindMissed:
				forJobs = true
			case kindForecast:
				forPlan = true
			}
		}
	}
	slices.Sort(used)
	used = slices.Compact(used)
	statuses, whole := statusesOf(ctx, now.Budgets)
	s.whole = whole
	known := map[string][]limit.Limit{}
	for _, status := range statuses {
		s.facts = append(s.facts, ofBudget(status, used)...)
		for _, l := range status.Limits {
			known[status.Budget] = append(known[status.Budget], l.Limit)
		}
	}
	until := func(name string, at int64) int64 { return longest(known[name], at) }
	if forJobs && len(now.Jobs) > 0 {
		if err := w.seeJobs(ctx, now.Jobs, &s, until); err != nil {
			s.whole = false
			w.o.Log.Debug("an alert's look could not read the jobs", "error", err)
		}
	}
	if forPlan && w.o.Forecast != nil {
		list, made := w.plan.last(now.Jobs)
		if s.whole = s.whole && made > 0; made > 0 {
			s.facts = append(s.facts, ofForecast(list, now.Jobs, made, until)...)
		}
	}
	return s
}

// statusesOf reads budgets at once; whole is false if some could not be read.
func statusesOf(ctx context.Context, budgets map[string]*budget.Budget) (list []budget.Status, whole bool) {
	var mu sync.Mutex
	var reading sync.WaitGroup
	turns := make(chan struct{}, 8)
	for _, b := range budgets {
		reading.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			if status, err := b.Status(ctx); err == nil {
				mu.Lock()
				defer mu.Unlock()
				list = append(list, status)
			}
		})
	}
	reading.Wait()
	slices.SortFunc(list, func(a, b budget.Status) int { return strings.Compare(a.Budget, b.Budget) })
	return list, len(list) == len(budgets)
}

// seeJobs reads the records of passes that have ended since the last look.
func (w *Watcher) seeJobs(ctx context.Context, all []*jobs.Job, s *sight, until func(budget string, at int64) int64) error {
	views, err := jobs.Look(ctx, w.o.State, all)
	if err != nil {
		return err
	}
	for i, j := range all {
		ends := func(at int64) int64 { return until(j.Budget, at) }
		if j.StartedBy == jobs.StartedByCron {
			s.facts = append(s.facts, ofMissed(j, views[i].Missed, s.at, ends(s.at)))
		}
		if views[i].Last == nil {
			continue
		}
		var last jobs.Record
		if err := json.Unmarshal(views[i].Last, &last); err != nil {
			return fmt.Errorf("read the last pass of %s: %w", j.Name, err)
		}
		list, seen := []jobs.Record{last}, w.ended[j.Name]
		if seen != 0 && ended(last) > seen {
			records, err := jobs.History(ctx, w.o.State, j.Name, time.Time{}, time.Time{}, mostRead)
			if err != nil {
				return err
			}
			records = slices.DeleteFunc(records, func(r jobs.Record) bool { return ended(r) <= seen || ended(r) >= ended(last) })
			list = append(records, last)
			slices.SortStableFunc(list, func(a, b jobs.Record) int { return cmp.Compare(ended(a), ended(b)) })
		}
		w.ended[j.Name] = max(seen, ended(last))
		for i, record := range list {
			still := int64(0)
			if i == len(list)-1 {
				still = s.at
			}
			s.facts = append(s.facts, ofPass(j, record, ends, still)...)
		}
		if j.StaleAfter > 0 {
			complete := views[i].LastSuccess
			s.starved = append(s.starved, func(since int64) fact {
				return ofStarved(j, complete, last.Outcome, since, s.at, ends(s.at))
			})
		}
	}
	return nil
}

// concern are the facts that an alert tells of.
func concern(a config.Alert, now Now, s sight, since int64) (list []fact) {
	facts := slices.Clone(s.facts)
	for _, starved := range s.starved {
		facts = append(facts, starved(since))
	}
	kinds := map[string]bool{}
	for _, on := range a.On {
		if on.Kind == kindUsed {
			kinds[usedKind(on.Percent)] = true
		} else {
			kinds[on.Kind] = true
		}
	}
	for _, f := range facts {
		if f.lock && kinds[kindLocked] {
			continue
		}
		if kinds[f.Kind] && a.Has(f.Budget, f.Job, func() []string { return jobsOf(now.Jobs, f.Budget) }) {
			list = append(list, f)
		}
	}
	return list
}

// jobsOf are the names of the jobs that spend a budget.
func jobsOf(all []*jobs.Job, name string) (list []string) {
	for _, j := range all {
		if j.Budget == name {
			list = append(list, j.Name)
		}
	}
	return list
}

// note writes down what a look has seen, if it is news to the alert's record as it was read.
func (w *Watcher) note(ctx context.Context, a config.Alert, found driver.JobDocument, now Now, s sight) error {
	r, err := read(a.Name, found)
	if err != nil {
		return err
	}
	apply := func(r *record, at int64) bool {
		since := r.Since
		if since == 0 {
			since = at
		}
		return r.take(a.Name, concern(a, now, s, since), s.whole, at)
	}
	if apply(r, found.Now) {
		err = change(ctx, w.o.State, a.Name, func(r *record, at int64) error {
			if !apply(r, at) {
				return errStays
			}
			return nil
		})
	}
	return err
}
