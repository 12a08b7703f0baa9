package config

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/headroom"
	"github.com/quotactl/quotactl/budget/limit"
)

// dayUpstreams are upstreams known to grant a quota by the calendar: a part of their
// names, and the calendar to write.
var dayUpstreams = []struct{ name, write string }{
	{"youtube", `calendar = "day", timezone = "America/Los_Angeles"`},
	{"gemini", `calendar = "day", timezone = "America/Los_Angeles"`},
	{"strava", `calendar = "day"`},
}

// warnLimits warns of what is legal but probably a mistake among an upstream's limits;
// tables are their nodes.
func (u *Upstream) warnLimits(tables []Node) {
	for i, l := range u.Limits {
		node := tables[i]
		switch {
		case l.Quota > 0 && l.Headroom == 0:
			node.Warn("limit %s keeps nothing back of its quota, so there is no room for outages and for what others spend of it; write a headroom", l.Name)
		case l.PerOperation && len(u.Costs) == 1 && !u.Unknown.Allowed:
			node.Warn("limit %s has per = \"operation\", but there is only one operation: leave per out", l.Name)
		}
		u.warnPrecision(node, l)
		u.warnUnreported(node, l)
		for _, known := range dayUpstreams {
			if strings.Contains(strings.ToLower(u.Name), known.name) && l.Quota > 0 && isRollingDay(l) && !u.hasCalendar(limit.Day) {
				node.Warn("limit %s covers a trailing 24 hours, but %s grants its quota by the calendar: the units of two rolling days may fall into one of the upstream's days; add a limit with %s", l.Name, u.Name, known.write)
			}
		}
		for _, other := range u.Limits {
			if neverBinds(l, other) {
				node.Warn("limit %s never binds: limit %s counts the same over the same time and allows no more", l.Name, other.Name)
				break
			}
		}
	}
}

// warnPrecision warns of slots that do not make the ledger smaller: charges merge once their
// ids are no longer kept, if no limit needs each of them.
func (u *Upstream) warnPrecision(node Node, l limit.Limit) {
	if l.Window.Precision == 0 {
		return
	}
	if l.Window.Length <= driver.MinHeld {
		node.Warn("precision has no effect on the size of the ledger: limit %s has a window of %s, and each charge is kept for the hour in which its id is known; leave precision out", l.Name, limit.SpanText(time.Duration(l.Window.Length)*time.Microsecond))
		return
	}
	for _, other := range u.Limits {
		w := other.Window
		if w.Kind == limit.CalendarKind || w.Kind == limit.Rolling && w.Precision == 0 && w.Length > driver.MinHeld {
			node.Warn("precision has no effect on the size of the ledger: limit %s needs each charge by itself; write a window with precision there too, or leave it out here", other.Name)
			return
		}
	}
}

// warnNotModified warns of a not_modified that has no effect or is above the operation's
// units.
func (u *Upstream) warnNotModified(costs []Node) {
	for _, cost := range costs {
		price := u.Costs[cost.Key()]
		for _, node := range cost.children() {
			switch {
			case node.Key() != "not_modified" || price.NotModified == nil:
			case slices.Contains(u.Feedback.Free, http.StatusNotModified):
				node.Warn("not_modified has no effect because free_statuses has 304: such calls are released, and count in no limit")
			case *price.NotModified > price.Units:
				node.Warn("not_modified = %d is more than the operation's %d: an unchanged response costs more than a changed one", *price.NotModified, price.Units)
			}
		}
	}
}

func isRollingDay(l limit.Limit) bool {
	return l.Window.Kind == limit.Rolling && l.Window.Length == 86_400_000_000
}

func (u *Upstream) hasCalendar(length string) bool {
	return slices.ContainsFunc(u.Limits, func(l limit.Limit) bool {
		return l.Window.Kind == limit.CalendarKind && l.Window.Calendar.Length() == length
	})
}

// neverBinds reports whether another limit refuses whatever this one would.
func neverBinds(l, other limit.Limit) bool {
	if l.Name == other.Name || other.Observe && !l.Observe || l.Counts != other.Counts || l.PerOperation != other.PerOperation || l.Window.Kind != other.Window.Kind ||
		!slices.Equal(l.Operations, other.Operations) || l.Window.Key() != other.Window.Key() || l.Window.Refill != other.Window.Refill {
		return false
	}
	if other.Auto > 0 { // it may allow more than now
		return other.Quota-headroom.Least(other.Quota) <= l.Limit
	}
	if l.Limit == other.Limit { // of equal limits, keep the one with a quota
		return l.Quota == 0 && other.Quota > 0
	}
	return other.Limit < l.Limit
}
