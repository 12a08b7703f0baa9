package redisstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// hold sets what the script must know of an item to hold or to draw.
func (b *batch) hold(a *itemArgs, item *driver.Item, known registry) {
	if !item.IsHold() {
		a.Op = known.number(item.Operation, item.Labels.Job)
		if item.Fence != "" {
			a.Name = item.Operation
		}
		return
	}
	a.Span, a.Units = item.Span, 0
	for _, n := range item.Needs {
		a.Units = min(a.Units+n.Units, limit.MaxUnits+1)
		a.Needs = append(a.Needs, needArgs{known.number(n.Operation, ""), n.Operation, n.Units, n.Calls})
	}
	for _, l := range b.Limits {
		a.Amounts = append(a.Amounts, item.Amount(l))
	}
}

// changeHold renews the holds of a pass, or ends one.
func (s *Store) changeHold(ctx context.Context, c driver.HoldChange) (driver.HoldLeft, error) {
	doing := "change a hold in"
	for {
		r := s.registry(c.Budget)
		a, err := s.ask(ctx, doing, c.Budget, s.scripts.Hold, s.keys(c.Budget, r), func(time.Time) []any {
			return arguments(holdArgs{ledgerArgs{Sig: r.sig, Now: c.Now}, c.Fence, c.Region, c.Lease})
		})
		switch {
		case err != nil:
			return driver.HoldLeft{}, err
		case a.status == statusDone && !tuple(isHolds)(any(a.rest)):
			return driver.HoldLeft{}, s.strange(doing+" "+c.Budget, a.rest)
		case a.status == statusDone:
			return driver.HoldLeft{Now: earlierClock(a.now, c.Now), Holds: holdsOf(list(a.rest, 0))}, nil
		case ctx.Err() != nil:
			return driver.HoldLeft{}, fmt.Errorf("%s %s in Redis: %w: out of time", doing, c.Budget, driver.ErrUnavailable)
		}
	}
}

// isHolds checks a list of holds.
func isHolds(v any) bool {
	lines, ok := v.([]any)
	for _, line := range lines {
		text, isText := line.(string)
		_, fine := readHold(text)
		ok = ok && isText && fine
	}
	return ok && len(lines) <= driver.MaxHolds
}

// holdsOf reads a list of holds.
func holdsOf(lines []any) (holds []driver.Hold) {
	for i := range lines {
		h, _ := readHold(text(lines, i)) // checked with the reply
		holds = append(holds, h)
	}
	return holds
}

// readHold reads a line of lua/holds.lua.
func readHold(line string) (h driver.Hold, ok bool) {
	f := strings.Split(line, "|")
	if len(f) != 10 || !count(f[0]) || !count(f[5]) || !count(f[6]) || !count(f[7]) || !count(f[8]) {
		return h, false
	}
	h = driver.Hold{Fence: f[1], Job: f[2], Region: f[3], Span: number(f[6]), Since: number(f[7]), Until: number(f[8])}
	for need := range strings.SplitSeq(strings.TrimSuffix(f[9], ","), ",") {
		n := strings.Split(need, ":")
		if len(n) != 4 || !count(n[1]) || !count(n[2]) {
			return h, false
		}
		h.Left = append(h.Left, driver.Need{Operation: n[3], Units: number(n[1]), Calls: number(n[2])})
	}
	return h, true
}
