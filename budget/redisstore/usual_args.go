package redisstore

import (
	"math"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// asked is at most how many numbers the script is given, which Lua's stack must hold at once.
func (u *usualBatch) asked() int {
	each := 6 + 3*len(u.sums)
	for _, s := range u.sums {
		if len(s.shares) > 0 {
			each += 4 + 3*len(s.shares)
		}
	}
	return 18 + 2*driver.MaxBatch + 3*len(u.windows) + len(u.sums) + 2*len(u.meters) + (each+len(u.meters))*len(u.runs)
}

// row is the place of an operation among the rows, which it enters if it is not there yet.
func (u *usualBatch) row(operation int) int {
	for i, no := range u.rows {
		if no == operation {
			return i + 1
		}
	}
	u.rows = append(u.rows, operation)
	return len(u.rows)
}

// at is the place of a limit's use.
func (u *usualBatch) at(s sumPlace) int64 {
	if s.operation == 0 {
		return int64(s.place)
	}
	return int64(u.size() + (u.row(s.operation)-1)*u.stride() + rowNumbers + totalNumbers*(s.window-1) + column(s.calls))
}

// keys are the keys of usual.lua.
func (u *usualBatch) keys(b *batch) []any {
	keys := make([]any, 0, 3+len(u.runs))
	keys = append(keys, u.argM, u.argE)
	for _, run := range u.runs {
		keys = append(keys, run.key)
	}
	if b.store.kept(b.Budget) > 0 {
		keys = append(keys, u.argLog)
	}
	return keys
}

// args are the arguments of usual.lua, as it lists them.
func (u *usualBatch) args(b *batch, attempt time.Time) []any {
	serverTime, deadline := b.store.serverTimes(b.Budget), int64(math.MaxInt64)
	b.aim()
	for _, i := range b.open {
		deadline = min(deadline, serverTime(earlier(b.until[i], attempt)))
	}
	ends, same := make([]string, len(b.open)), true
	for j, i := range b.open {
		if l := b.Items[i].Labels; j > 0 && l == b.Items[b.open[j-1]].Labels {
			ends[j] = ends[j-1]
		} else {
			ends[j], same = "|"+l.Job+"|"+l.Region+"|"+l.Run, j == 0
		}
		same = same && ends[j] == ends[0]
	}
	if same {
		ends = ends[:1]
	}
	known := make([]any, 0, 1+len(b.Others))
	if b.Mark.ID != "" {
		known = append(known, b.Mark.ID)
	}
	for _, m := range b.Others {
		if m.ID != "" {
			known = append(known, m.ID)
		}
	}
	day, expires := int64(-1), int64(0)
	if kept := b.store.kept(b.Budget); kept > 0 {
		day, expires = u.day*historyDay, ((u.day+1)*historyDay+driver.HistoryHour+kept)/1000
	}
	numbers := make([]byte, 0, 512)
	numbers = appendNumbers(numbers, b.Now, deadline, u.until, u.next, b.Mark.Changes, int64(u.size()), int64(len(u.windows)), int64(u.covers),
		int64(len(u.rows)), int64(len(u.runs)), int64(len(known)), int64(len(b.open)), int64(len(u.sums)), int64(len(ends)), day, expires, 4*b.store.block())
	for _, w := range u.windows {
		used := int64(0)
		if w.used {
			used = 1
		}
		numbers = appendNumbers(numbers, w.length, w.precision, used)
	}
	for _, sum := range u.sums {
		numbers = appendNumbers(numbers, u.at(sum))
	}
	for _, m := range u.meters {
		numbers = appendNumbers(numbers, m.amount, m.period)
	}
	for _, run := range u.runs {
		numbers = u.appendChecks(numbers, b, run)
	}
	for _, f := range u.settles {
		numbers = appendNumbers(numbers, f.Units, f.Age)
	}
	numbers = appendNumbers(numbers, int64(len(u.settles)))
	args := make([]any, 0, 2+len(u.rows)+3*len(u.runs)+len(known)+len(u.settles)+len(b.open)+len(ends))
	args = append(args, u.argHead, numbers)
	for _, no := range u.rows {
		args = append(args, u.fields[no])
	}
	for _, run := range u.runs {
		args = append(args, run.member, run.entry, u.series(b, run))
	}
	args = append(args, known...)
	for _, f := range u.settles {
		args = append(args, f.ID)
	}
	for _, i := range b.open {
		args = append(args, b.Items[i].ID)
	}
	for _, end := range ends {
		args = append(args, end)
	}
	return args
}

// appendChecks appends what the script checks for the items of a run.
func (u *usualBatch) appendChecks(numbers []byte, b *batch, run usualRun) []byte {
	item := &b.Items[b.open[run.first]]
	numbers = appendNumbers(numbers, int64(run.items), item.Units, int64(run.row), item.Lease)
	numbers = appendNumbers(numbers, run.poured...)
	count := len(numbers)
	numbers = appendNumbers(numbers, 0)
	checks, divided := int64(0), int64(0)
	for k := range b.Limits {
		l := &b.Limits[k]
		if item.CheckedBy(*l) {
			checks++
			numbers = appendNumbers(numbers, u.at(u.sums[k]), l.Amount(item.Units), l.Bound(item.Floor, item.UseHeadroom))
		}
	}
	appendNumbers(numbers[:count], checks)
	count = len(numbers)
	numbers = appendNumbers(numbers, 0)
	for k := range b.Limits {
		l, shares := &b.Limits[k], u.sums[k].shares
		if len(shares) == 0 || !item.CheckedBy(*l) {
			continue
		}
		divided++
		own, others := l.ShareOf(item.Labels.Job), int64(len(shares))
		if own >= 0 {
			others--
		}
		numbers = appendNumbers(numbers, u.at(u.sums[k]), l.Amount(item.Units), l.Bound(0, item.UseHeadroom), others)
		for j, s := range shares {
			if j != own {
				numbers = appendNumbers(numbers, int64(s.place), s.units, s.until)
			}
		}
	}
	appendNumbers(numbers[:count], divided)
	return numbers
}

// series is what a run adds to the history.
func (u *usualBatch) series(b *batch, run usualRun) string {
	if b.store.kept(b.Budget) == 0 {
		return ""
	}
	var spent spentSeries
	for _, i := range b.open[run.first : run.first+run.items] {
		spent.add(&b.Items[i])
	}
	return spent.String()
}
