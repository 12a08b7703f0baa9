package view

import (
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/screen"
)

// limitOf is a rolling limit with the given use and kept units.
func limitOf(name string, window time.Duration, used, kept, whole int64) budget.LimitStatus {
	l := budget.LimitStatus{Limit: limit.Limit{Name: name, Limit: whole, Counts: limit.CountUnits, Window: limit.RollingWindow(window)}, Used: used, Remaining: whole - used}
	if kept > 0 {
		l.Shares = []budget.ShareStatus{{Share: limit.Share{Name: "nightly"}, Kept: kept}}
	}
	return l
}

// The headline is of the tightest limit, of which what is kept for shares is not free.
func TestHeadline(t *testing.T) {
	minute, day := limitOf("minute", time.Minute, 53, 0, 100), limitOf("day", 24*time.Hour, 784, 160, 950)
	status := budget.Status{Budget: "geo/main", Limits: []budget.LimitStatus{minute, day}}
	check.Equal(t, Left(screen.Pipe(), status), "6 of 950 units free in limit day, 160 more kept for nightly", "left")
	on := screen.Screen{Terminal: true, Width: 100, Height: 24, Zone: time.UTC}
	check.Equal(t, strings.HasPrefix(Glance(on, status, nil, false), "geo/main  6 of 950 units free in limit day, 160 more kept for nightly\n"), true, Glance(on, status, nil, false))
	check.Equal(t, strings.HasPrefix(Glance(on, budget.Status{Budget: "a/b"}, nil, false), "a/b  no limits\n"), true, "without limits")
}
