package budget

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/headroom"
	"github.com/quotactl/quotactl/budget/limit"
)

// document is the name of the document that the hosts share.
func (a *autos) document() string { return "@headroom/" + a.name }

// update reads what hosts noted and the history, notes what this process saw, and works out
// the headrooms.
func (a *autos) update(ctx context.Context) error {
	asked := a.now().UnixMicro()
	doc, err := a.jobs.Job(ctx, a.document())
	heard := a.now().UnixMicro()
	if err != nil {
		return fmt.Errorf("read what hosts noted: %w", outOfReach(ctx, err))
	}
	var notes headroom.Notes
	if doc.Text != nil {
		if err := json.Unmarshal(doc.Text, &notes); err != nil {
			return fmt.Errorf("read what hosts noted: %w", err)
		}
	}
	if notes.Limits == nil {
		notes.Limits = map[string]headroom.Noted{}
	}
	a.mu.Lock()
	a.passResets(doc.Now)
	a.sawClock(max(asked-doc.Now, doc.Now-heard, 0), doc.Now)
	shared := a.pending
	a.pending = headroom.Notes{}
	changed := a.addTo(notes, shared)
	a.notes = notes
	text, err := json.Marshal(notes) // before this process sees more
	a.mu.Unlock()

	if changed && err == nil {
		err = a.swap(ctx, driver.JobSwap{Job: a.document(), Version: doc.Version, Text: text}, shared)
	}
	if failed := a.readHistory(ctx, doc.Now); failed != nil {
		return errors.Join(failed, err)
	}
	a.workAt(a.own, doc.Now)
	return err
}

// addTo adds what a process saw to notes, and reports whether that changes them.
func (a *autos) addTo(notes, saw headroom.Notes) (changed bool) {
	for _, l := range a.own {
		seen, some := saw.Limits[l.Name]
		if !some {
			continue
		}
		noted := notes.Limits[l.Name]
		for _, s := range seen.Periods {
			changed = noted.See(l.Window, seen.Since, s) || changed
		}
		notes.Limits[l.Name] = noted
	}
	return changed
}

// swap replaces the document. If another host was faster, or it is unknown whether it was
// replaced, what this process saw is left for the next time.
func (a *autos) swap(ctx context.Context, swap driver.JobSwap, shared headroom.Notes) error {
	done, err := a.jobs.SwapJob(ctx, swap)
	if done && err == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pending.Limits == nil {
		a.pending.Limits = map[string]headroom.Noted{}
	}
	a.addTo(a.pending, shared)
	if err != nil {
		return fmt.Errorf("share what was seen: %w", outOfReach(ctx, err))
	}
	return nil
}

// readHistory reads what the history says of the limits that have enough periods of
// evidence: all once an hour, else the last two hours.
func (a *autos) readHistory(ctx context.Context, now int64) error {
	a.mu.Lock()
	since := now
	for _, l := range a.own {
		if begin, periods := a.notes.Limits[l.Name].Begin(l.Window, now); periods == headroom.Full {
			since = min(since, begin-headroom.Span)
		}
	}
	all := a.full != driver.HourOf(now)
	a.mu.Unlock()
	if since == now {
		return nil
	}
	if !all {
		since = max(since, driver.HourOf(now)-driver.HistoryHour)
	}
	query := driver.HistoryQuery{Budget: a.name, Now: a.now().UnixMicro(), Since: max(0, since), Hours: true, Operations: true}
	view, err := a.store.History(ctx, query)
	if err != nil {
		return fmt.Errorf("read the history: %w", outOfReach(ctx, err))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.own {
		e, keep := a.known[l.Name], driver.HourOf(now)-driver.HistoryHour
		drift, spent := samples(l, view.Rows)
		if all {
			e = headroom.Evidence{Since: view.Since, Drift: replace(e.Drift, nil, 0, keep)}
		}
		// What this process has added itself may be missing in an answer that is older.
		e.Drift = replace(e.Drift, drift, view.Since, keep)
		e.Spent = replace(e.Spent, spent, view.Since, limit.Never)
		a.known[l.Name] = e
	}
	if all {
		a.full = driver.HourOf(now)
	}
	return nil
}

// samples are what a limit counted in each hour, and its drift.
func samples(l limit.Limit, rows []driver.HistoryRow) (drift, spent []headroom.Sample) {
	drifted, counted := map[int64]int64{}, map[int64]int64{}
	for _, row := range rows {
		amount := row.Units
		if l.Counts == limit.CountCalls {
			amount = row.Calls
		}
		if row.Operation == limit.DriftOperation(l.Name) {
			drifted[row.Hour] += amount
		}
		if l.Covers(row.Operation) {
			counted[row.Hour] += amount
		}
	}
	return inOrder(drifted), inOrder(counted)
}

func inOrder(amounts map[int64]int64) (list []headroom.Sample) {
	for hour, amount := range amounts {
		if amount > 0 {
			list = append(list, headroom.Sample{Hour: hour, Amount: min(amount, limit.MaxUnits)})
		}
	}
	slices.SortFunc(list, func(a, b headroom.Sample) int { return int(min(1, max(-1, a.Hour-b.Hour))) })
	return list
}

// replace puts the samples of the hours from since on in place of older ones. From the hour
// keep on, the higher of both counts.
func replace(old, read []headroom.Sample, since, keep int64) []headroom.Sample {
	amounts := map[int64]int64{}
	for _, s := range old {
		if s.Hour < since || s.Hour >= keep {
			amounts[s.Hour] = s.Amount
		}
	}
	for _, s := range read {
		amounts[s.Hour] = max(amounts[s.Hour], s.Amount)
	}
	return inOrder(amounts)
}
