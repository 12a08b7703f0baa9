package storetest

import (
	"context"
	"fmt"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

var walkJobs = []string{"job", "job", "nightly", "feeds.us", "feeds.eu", "backfill.1", "backfill"}

// decide has both decide random items.
func (w *walker) decide(limits []limit.Limit) {
	batch := driver.Batch{Budget: w.budget, Now: w.caller(), Limits: limits, Observe: w.rng.IntN(8) == 0}
	batch.Host, batch.Hosts, batch.WithinPart = w.host(), w.rng.Int64N(4), w.rng.IntN(4) == 0
	batch.Table = driver.ShareTable{Host: batch.Host, Digest: []string{"none", "0f", "1e"}[w.rng.IntN(3)]}
	n := 1
	if w.rng.IntN(3) == 0 {
		n += w.rng.IntN(8)
	}
	if w.calm && w.rng.IntN(20) > 0 { // a process has a host, and one table
		batch.Host, batch.Table = "0a", driver.ShareTable{}
	}
	for range n {
		if w.rng.IntN(20) == 0 && (!w.calm || w.rng.IntN(40) == 0) {
			batch.Items = append(batch.Items, w.holdItem(limits))
			continue
		}
		batch.Items = append(batch.Items, w.item(limits))
	}
	for w.rng.IntN(6) == 0 {
		batch.Finishes = append(batch.Finishes, w.someFinish())
	}
	w.send(batch)
}

// send has both decide a batch.
func (w *walker) send(batch driver.Batch) {
	w.step += len(batch.Items)
	told, held, limits := w.told(), w.heldNow(), batch.Limits
	batch.Mark = told.store
	got, gotErr := w.store.Decide(context.Background(), batch)
	left := batch.Finishes
	if gotErr != nil || len(got.Finished) == len(left) {
		left = nil
	} else { // the items were decided before, as driver.Decisions allows
		batch.Finishes = nil
	}
	batch.Mark = told.model
	want, wantErr := w.model.Decide(context.Background(), batch)
	w.same("decide", batch, got, gotErr, want, wantErr)
	w.tell(want.Mark, got.Mark)
	switch {
	case len(left) > 0:
		w.counts["finished after the items"]++
		w.end(batch.Now, left...)
	case wantErr != nil && len(batch.Finishes) > 0: // they may be done
		w.end(batch.Now, batch.Finishes...)
	default:
		w.countEnds(batch.Finishes, want.Finished)
	}
	w.countDraw(batch.Items, want.Items, held)
	for i, d := range want.Items {
		w.countHold(batch.Items[i], d)
		if d.Result == driver.Granted && !batch.Items[i].IsHold() {
			w.kept.granted(batch.Items[i], d, want.Seen)
		}
		if d.Result == driver.Granted && !batch.Items[i].DryRun && !batch.Items[i].IsHold() {
			one := driver.Mark{ID: batch.Items[i].ID, At: d.At}
			w.seen = append(w.seen, marks{one, one})
		}
		if d.Observed != "" {
			w.counts["observed"]++
		}
		switch {
		case d.Recovering:
			w.counts["recovering"]++
		case d.Locked:
			w.counts["locked"]++
		case d.Result == driver.Granted && batch.Items[i].Recorded:
			w.counts["recorded"]++
		case d.Replayed:
			w.counts["replayed"]++
		case d.Result == driver.Refused:
			w.counts["refused"]++
			w.counts["refused by "+kindOf(limits[d.Limit].Window)]++
			w.countKept(limits[d.Limit], batch.Items[i], d, want.Seen)
		default:
			w.counts[map[driver.Result]string{driver.Granted: "granted", driver.NeverFits: "never fits", driver.Conflict: "conflict", driver.Fenced: "fenced"}[d.Result]]++
		}
	}
}

// item is a new call, or one seen before, the same or changed.
func (w *walker) item(limits []limit.Limit) driver.Item {
	if len(w.ids) > 0 && w.rng.IntN(8) == 0 && (!w.calm || w.rng.IntN(4) == 0) {
		again := w.ids[w.rng.IntN(len(w.ids))]
		if w.rng.IntN(3) == 0 {
			again.Units++
		}
		return again
	}
	i := driver.Item{
		ID:        fmt.Sprintf("id-%d-%d", w.step, len(w.ids)),
		Operation: walkOperations[w.rng.IntN(len(walkOperations))],
		Units:     1 + w.rng.Int64N(limits[0].Limit),
	}
	if w.calm {
		i.Units = 1 + i.Units%7
	}
	switch w.rng.IntN(10) {
	case 0:
		i.Units = 0
	case 1, 2, 3, 4:
		i.Units = 1
	case 5:
		i.Units += w.rng.Int64N(10)
	}
	if w.rng.IntN(5) == 0 {
		i.Floor = w.rng.Int64N(10)
	}
	i.UseHeadroom = w.rng.IntN(6) == 0
	if w.rng.IntN(4) == 0 || w.heldNow() > 0 && w.rng.IntN(3) == 0 {
		i.Lease = []int64{1, 50, second, minute, hour, 24 * hour}[w.rng.IntN(6)]
	}
	if w.rng.IntN(3) > 0 {
		i.Labels = driver.Labels{Job: walkJobs[w.rng.IntN(len(walkJobs))], Region: "US", Run: fmt.Sprint("run-", w.step%7)}
		if w.rng.IntN(3) > 0 {
			i.Fence = w.fence()
			i.Labels.Job = passJob(i.Fence)
		}
	}
	if i.DryRun = w.rng.IntN(12) == 0 && (!w.calm || w.rng.IntN(6) == 0); i.DryRun {
		w.counts["dry run"]++
		return i
	}
	if w.rng.IntN(12) == 0 && (!w.calm || w.rng.IntN(6) == 0) {
		i.Recorded, i.Age = true, w.age()
	}
	w.ids = append(w.ids, i)
	return i
}

// finish settles or releases random charges on both: mostly one.
func (w *walker) finish() {
	list := []driver.Finish{w.someFinish()}
	for w.rng.IntN(3) == 0 {
		list = append(list, w.someFinish())
	}
	w.end(w.caller(), list...)
}

// someFinish settles or releases a random charge.
func (w *walker) someFinish() driver.Finish {
	f := driver.Finish{ID: "unknown", Release: w.rng.IntN(2) == 0, Units: w.rng.Int64N(40)}
	var open []string
	for _, i := range w.ids {
		if i.Lease > 0 {
			open = append(open, i.ID)
		}
	}
	switch {
	case w.drew != "":
		f.ID, w.drew = w.drew, ""
	case len(open) > 0 && w.rng.IntN(8) > 0:
		f.ID = open[max(0, len(open)-1-w.rng.IntN(6))] // a recent one: most of the others are forgotten
	case len(w.ids) > 0:
		f.ID = w.ids[w.rng.IntN(len(w.ids))].ID
	}
	if w.rng.IntN(4) == 0 {
		f.Units = w.rng.Int64N(3) // so that some settle twice with the same value
	}
	if w.rng.IntN(5) == 0 {
		f.Age = w.age()
		w.counts["finished earlier"]++
	}
	return f
}

// end settles or releases on both.
func (w *walker) end(caller int64, list ...driver.Finish) (result driver.FinishResult) {
	w.step += len(list)
	held := w.heldNow()
	ask := driver.Finishes{Budget: w.budget, Now: caller, Items: list}
	want, wantErr := w.model.Finish(context.Background(), ask)
	got, gotErr := w.store.Finish(context.Background(), ask)
	w.same("finish", ask, got, gotErr, want, wantErr)
	if wantErr != nil {
		return result
	}
	if w.heldNow() > held {
		w.counts["given back"]++
	}
	return w.countEnds(list, want)
}

// countEnds remembers how reservations ended, and returns how the last did.
func (w *walker) countEnds(list []driver.Finish, done []driver.Finished) (result driver.FinishResult) {
	for i, one := range done {
		w.kept.finished(list[i], one)
		result = one.Result
		w.countEnd(result)
	}
	return result
}

func (w *walker) countEnd(result driver.FinishResult) {
	w.counts[map[driver.FinishResult]string{
		driver.Settled: "settled", driver.Released: "released", driver.FinishConflict: "finish conflict", driver.FinishExpired: "finish expired",
	}[result]]++
}
