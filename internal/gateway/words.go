package gateway

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/screen"
)

// statusTime bounds how long Left asks the store.
const statusTime = 2 * time.Second

// Left ends all requests, and reads what the budgets of the calls have left then. Those that the
// store does not answer for are left out.
func (g *Gateway) Left(ctx context.Context) map[string]budget.Status {
	g.stop()
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	g.meters.mu.Lock()
	defer g.meters.mu.Unlock()
	left := map[string]budget.Status{}
	for name, one := range g.meters.byName {
		if one.budget.Flush(ctx) != nil {
			continue
		}
		if status, err := one.budget.Status(ctx); err == nil {
			left[name] = status
		}
	}
	return left
}

// Lines sum up a command's calls for people: in the first line what they took, then what is
// wrong, if anything. name is that of the job, or of the command; job is empty for one without.
func (t *Tally) Lines(name, job string, on screen.Screen, left map[string]budget.Status) []string {
	on = forPeople(on)
	var first []string
	for _, b := range slices.Sorted(maps.Keys(t.Budgets)) {
		spent := t.Budgets[b]
		text := fmt.Sprintf("%s, %s of %s", count(on, spent.Calls, "call", "calls"), count(on, spent.Units, "unit", "units"), b)
		text += spent.refusals(on)
		if s, known := left[b]; known {
			text += leftText(on, s, job)
		}
		first = append(first, text)
	}
	if t.Own > 0 {
		first = append(first, count(on, t.Own, "call", "calls")+" that the program charged itself")
	}
	if len(first) == 0 && len(t.Misconfigured)+len(t.Failed) == 0 && !t.Chosen {
		first = append(first, "no call to an upstream of the configuration was seen")
	} else if len(first) == 0 {
		first = append(first, "no call was charged")
	}
	if passed := t.passedText(on); passed != "" {
		first = append(first, passed)
	}
	lines := []string{name + ": " + strings.Join(first, "; ")}
	for _, host := range slices.Sorted(maps.Keys(t.Broken)) {
		lines = append(lines, fmt.Sprintf("%s broken off by the program, as one with its own CA list or a pinned key does; --tunnel %s lets it pass unmetered",
			count(on, int64(t.Broken[host]), "handshake with "+host+" was", "handshakes with "+host+" were"), host))
	}
	for _, host := range slices.Sorted(maps.Keys(t.Failed)) {
		lines = append(lines, fmt.Sprintf("%s to %s failed: %s", count(on, int64(t.Failed[host]), "call", "calls"), host, t.Why[host]))
	}
	for _, why := range t.Misconfigured {
		lines = append(lines, "calls were refused: "+why)
	}
	if t.StoreAway > 0 {
		lines = append(lines, count(on, int64(t.StoreAway), "call was", "calls were")+" refused because the store did not decide; quotactl doctor says why")
	}
	return lines
}

// refusals is which calls of a budget did not get through.
func (s *Spent) refusals(on screen.Screen) (text string) {
	add := func(n int64, what string) {
		if n > 0 {
			text += ", " + count(on, n, "call", "calls") + " " + what
		}
	}
	refused := "refused"
	if s.First != nil && s.First.Limit != "" {
		refused += " by limit " + s.First.Limit
	}
	if s.First != nil && s.First.Units > 1 {
		refused += " (the first is for " + on.Number(s.First.Units) + " units)"
	}
	add(s.Final, refused)
	add(s.Later, "refused for less than a minute (429)")
	add(s.GaveUp, "given up by the program before they were sent")
	add(s.Denied, "refused by the API")
	return text
}

// Well reports whether there is nothing that somebody should look at: calls were seen, or connections
// that were to pass, and none was refused, given up before it was sent, or failed.
func (t *Tally) Well() bool {
	refused := len(t.Misconfigured) + len(t.Failed) + t.StoreAway
	for _, s := range t.Budgets {
		refused += int(s.Final + s.Later + s.GaveUp + s.Denied)
	}
	return refused == 0 && (len(t.Budgets)+int(t.Own) > 0 || t.Chosen)
}

// passedText is what no upstream meters.
func (t *Tally) passedText(on screen.Screen) string {
	parts := most(t.Passed, func(at string, n int64) string {
		host, first, _ := strings.Cut(at, "/")
		return fmt.Sprintf("%s to %s paths of %s", count(on, n, "call", "calls"), first, host)
	})
	parts = append(parts, most(t.Tunnels, func(host string, n int64) string {
		return fmt.Sprintf("%s to %s", count(on, n, "connection", "connections"), host)
	})...)
	if len(parts) == 0 {
		return ""
	}
	return strings.Join(parts, " and ") + " passed unmetered"
}

// mostShown bounds how many hosts or paths a line names.
const mostShown = 3

// most are the texts of the largest counts.
func most(counts map[string]int, text func(name string, n int64) string) (parts []string) {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Or(counts[b]-counts[a], strings.Compare(a, b)) })
	for i, name := range names {
		if i == mostShown {
			return append(parts, fmt.Sprintf("%d others", len(names)-mostShown))
		}
		parts = append(parts, text(name, int64(counts[name])))
	}
	return parts
}

// leftText is what is left for a job of a budget's tightest limit, and until when that is all.
func leftText(on screen.Screen, s budget.Status, job string) string {
	s.Limits = slices.Clone(s.Limits)
	for i := range s.Limits {
		l := &s.Limits[i]
		if share := l.ShareOf(job); share >= 0 { // what is kept for the job is left for it
			l.Shares = slices.Clone(l.Shares)
			l.Shares[share].Kept = 0
		}
	}
	tightest := s.Tightest()
	switch {
	case tightest == nil:
		return ""
	case tightest.Lock != nil && tightest.Lock.Limit != "":
		return fmt.Sprintf(", limit %s locked until %s", tightest.Lock.Limit, on.Time(tightest.Lock.Until))
	case tightest.Lock != nil:
		return ", locked until " + on.Time(tightest.Lock.Until)
	case tightest.NextReturn.IsZero():
		return fmt.Sprintf(", %s left in limit %s", on.Number(tightest.Left), tightest.Name)
	}
	return fmt.Sprintf(", %s left in limit %s until %s", on.Number(tightest.Left), tightest.Name, on.Time(tightest.NextReturn))
}

func count(on screen.Screen, n int64, one, many string) string {
	if n == 1 {
		many = one
	}
	return on.Number(n) + " " + many
}

// forPeople writes instants and numbers for people, also where they go to a log or a program.
func forPeople(on screen.Screen) screen.Screen {
	on.Terminal, on.Now = true, time.Now()
	if on.Zone == nil {
		on.Zone = time.Local
	}
	return on
}
