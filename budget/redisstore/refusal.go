package redisstore

import (
	"strings"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// refusal is by what ends last, and the waits are those for all limits that the item waits for.
func (b *batch) refusal(item driver.Item, answer []any) (d driver.Decision, waits []limit.Wait) {
	d = driver.Decision{Result: driver.Refused, Limit: -1}
	used, now := func(i int) int64 { return numberAt(answer, 6+2*i) }, numberAt(answer, 3)
	for i, l := range b.Limits {
		wait, kept, ok := waitFor(item, l, used(i), text(answer, 7+2*i), now)
		if !ok {
			continue
		}
		waits = append(waits, wait)
		if at := wait.From(now); wait.Refused && (d.Limit < 0 || at > d.RetryAt) {
			d.Limit, d.RetryAt, d.Remaining, d.Kept = i, at, l.Remaining(used(i)), kept
		}
	}
	b.bindLocks(&d, text(answer, 5), used)
	return d, waits
}

// waitFor is how an item waits for a limit by what the script found; false: it does not.
func waitFor(item driver.Item, l limit.Limit, used int64, found string, now int64) (w limit.Wait, kept []int64, waits bool) {
	switch {
	case found == "":
		return w, nil, false
	case len(l.Shares) > 0:
		shared, _ := readShared(l, found) // checked with the reply
		return shared.wait(l, item.Lasts(), now), shared.kept, true
	}
	return limit.Wait{Refused: true, At: returnsAt(item, l, used, found)}, nil, true
}

// returnsAt is when an item fits a limit that refused it. found is the score that must
// leave the window, -1 if none does, or for a bucket the part and the time of its level.
func returnsAt(item driver.Item, l limit.Limit, used int64, found string) int64 {
	switch {
	case found == "-1":
		return limit.Never
	case l.Window.Kind != limit.Bucket:
		return l.Window.Returns(number(found))
	}
	part, at, _ := strings.Cut(found, "/")
	level := limit.Level{Used: used, Part: number(part), At: number(at)}
	return l.Window.Refill.Reaches(level, l.Bound(item.Floor, item.UseHeadroom)-l.Amount(item.Units))
}
