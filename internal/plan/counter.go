package plan

import (
	"cmp"
	"slices"

	"github.com/quotactl/quotactl/budget/limit"
)

// counter counts one limit in fake time: what has been charged is in a queue by its finish,
// beside the running sums of what of it still counts, so that a decision costs what expired.
type counter struct {
	usage // what counts now
	limit limit.Limit
	place int       // among the budget's limits
	queue []counted // from head on, by their finish
	head  int
	level limit.Level // of a bucket

	guarantees []int64 // of the shares
	lapses     bool    // some of them lapse before a reset
	byPlan     bool    // some of them lapse by plan

	cut   int64 // what finished up to here no longer counts
	until int64 // calendars: the end of the span in which the cut stays the same

	least   int64 // the least that was left, by what was charged, held and guaranteed
	leastAt int64
	ends    int64 // of the plan; passes may still go on
	resets  []Reset
}

// usage is an amount that a limit counts, and of it what is of each share's jobs.
type usage struct {
	used   int64
	shares []int64 // nil: nothing, or there are no shares
}

func (u *usage) add(amount int64, share int) {
	u.used += amount
	if share >= 0 {
		u.shares[share] += amount
	}
}

// counted is what a call counts in one limit.
type counted struct {
	score  int64 // when it finishes, µs
	lease  int64 // when its lease would end, as others see it until it finishes
	amount int64
	share  int32 // −1: none
}

func newCounter(l limit.Limit, place int, now int64) *counter {
	l.Shares = slices.Clone(l.Shares) // records are added to them
	c := &counter{
		limit: l, place: place, usage: usage{shares: make([]int64, len(l.Shares))}, level: limit.Level{At: now},
		guarantees: l.Guarantees(), lapses: len(l.Lapses()) > 0, byPlan: l.ByPlan(), least: l.Limit, leastAt: now, ends: limit.Never,
	}
	c.span(now)
	return c
}

// span sets the cut of an instant.
func (c *counter) span(now int64) {
	switch c.limit.Window.Kind {
	case limit.Bucket:
		return
	case limit.CalendarKind:
		_, c.until = c.limit.Window.Span(now)
	}
	c.cut = c.limit.Window.Cut(now)
}

// advance forgets what no longer counts at an instant.
func (c *counter) advance(now int64) {
	switch c.limit.Window.Kind {
	case limit.Bucket:
		c.level = c.limit.Window.Refill.Drain(c.level, now)
		c.used = c.level.Used
		return
	case limit.CalendarKind:
		if now < c.until {
			return
		}
		c.resets = append(c.resets, Reset{At: c.until, Left: c.limit.Remaining(c.used)})
		c.span(now)
	default:
		c.cut = c.limit.Window.Cut(now)
	}
	for ; c.head < len(c.queue) && c.queue[c.head].score <= c.cut; c.head++ {
		c.add(-c.queue[c.head].amount, int(c.queue[c.head].share))
	}
	if c.head > 1024 && c.head > len(c.queue)/2 {
		c.queue, c.head = append(c.queue[:0], c.queue[c.head:]...), 0
	}
}

// load counts what the ledger holds, in any order; sorted ends it.
func (c *counter) load(one counted) {
	if one.score <= c.cut || one.amount == 0 {
		return
	}
	c.queue = append(c.queue, one)
	c.add(one.amount, int(one.share))
}

func (c *counter) sorted() {
	slices.SortFunc(c.queue, func(a, b counted) int { return cmp.Compare(a.score, b.score) })
	c.note(c.leastAt, 0)
}

// charge counts a call.
func (c *counter) charge(one counted) {
	if c.limit.Window.Kind == limit.Bucket {
		c.level = c.limit.Window.Refill.Add(c.level, one.amount, 0)
		c.used = c.level.Used
		return
	}
	at := len(c.queue) // calls finish almost in the order in which they are charged
	for at > c.head && c.queue[at-1].score > one.score {
		at--
	}
	c.queue = slices.Insert(c.queue, at, one)
	c.add(one.amount, int(one.share))
}

// note remembers the least that was left, until the plan ends.
func (c *counter) note(now, held int64) {
	if left := c.limit.Limit - c.used - held; left < c.least && now <= c.ends {
		c.least, c.leastAt = max(left, 0), now
	}
}

// after is what is left of what counts now when all has gone that finished up to a cut. Open
// reservations are taken to run to the ends of their leases.
func (c *counter) after(cut, now int64) (left usage) {
	left.shares = make([]int64, len(c.shares))
	for i := len(c.queue) - 1; i >= c.head; i-- {
		one := &c.queue[i]
		if one.ends(now) > cut {
			left.add(one.amount, int(one.share))
		} else if one.score <= now {
			break // all before have finished earlier
		}
	}
	return left
}

// nextCut is up to which finish charges no longer count in the period of a calendar that comes
// after the one of an instant, now or later.
func (c *counter) nextCut(at int64) int64 {
	if at < c.until {
		return c.until - 2*c.limit.Window.Guard - 1
	}
	return c.limit.Window.AfterReset().Cut(at)
}

// inForce is what each share is guaranteed at an instant.
func (c *counter) inForce(at int64) []int64 {
	if !c.lapses && !c.byPlan {
		return c.guarantees
	}
	return c.limit.InForce(at)
}

// ends is the finish that others see: while a call is under way, its lease's end.
func (o *counted) ends(now int64) int64 {
	if o.score > now {
		return o.lease
	}
	return o.score
}

// ending is when the first call under way finishes; limit.Never: none is under way.
func (c *counter) ending(now int64) int64 {
	at, _ := slices.BinarySearchFunc(c.queue[c.head:], now+1, func(one counted, at int64) int { return cmp.Compare(one.score, at) })
	if at += c.head; at < len(c.queue) {
		return c.queue[at].score
	}
	return limit.Never
}

// kept is what is guaranteed to other shares than own and not spent or held.
func kept(guarantees []int64, counts, held usage, own int) (sum int64) {
	for i, g := range guarantees {
		if i == own {
			continue
		}
		if held.shares != nil {
			g -= held.shares[i]
		}
		sum += max(0, g-counts.shares[i])
	}
	return sum
}

// returning are what counts now in the order in which it returns if nothing else happens.
func (c *counter) returning(now int64, yield func(at int64, one *counted) bool) {
	i := c.head
	for ; i < len(c.queue) && c.queue[i].score <= now; i++ {
		if !yield(c.limit.Window.Returns(c.queue[i].score), &c.queue[i]) {
			return
		}
	}
	open := slices.Clone(c.queue[i:])
	slices.SortFunc(open, func(a, b counted) int { return cmp.Compare(a.lease, b.lease) })
	for i := range open {
		if !yield(c.limit.Window.Returns(open[i].lease), &open[i]) {
			return
		}
	}
}
