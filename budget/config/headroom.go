package config

import (
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/budget/headroom"
	"github.com/quotactl/quotactl/budget/limit"
)

// autoText asks for an automatic headroom, and autoMost is the most that it is unless the
// file says otherwise.
const (
	autoText = "auto"
	autoMost = "5%"
)

// readHeadroom reads units, a percentage of the quota rounded up, or that the headroom is
// automatic, and then its maximum.
func readHeadroom(node Node, quota int64) (units int64, automatic, ok bool) {
	text, isText := node.value.(string)
	switch {
	case node.IsTable():
		units, ok = readAuto(node, quota)
		return units, true, ok
	case isText && text == autoText:
		return percentOf(big.NewRat(5, 1), quota), true, true
	}
	units, ok = readPart(node, quota)
	return units, false, ok
}

// readAuto reads { auto = true, max = "5%" }.
func readAuto(node Node, quota int64) (units int64, ok bool) {
	t := node.Table(autoText, "max")
	if auto, isBool := t[autoText].Bool(); !auto {
		if isBool || !t[autoText].Exists() {
			node.Fail("headroom is a table without auto = true: write \"auto\", { auto = true, max = %q }, units or a percentage", autoMost)
		}
		return 0, false
	}
	if !t["max"].Exists() {
		return percentOf(big.NewRat(5, 1), quota), true
	}
	if units, ok = readPart(t["max"], quota); !ok {
		return 0, false
	}
	if units >= quota {
		t["max"].Fail("max = %s leaves nothing of the quota of %d: use less", t["max"].show(), quota)
		return 0, false
	}
	if least := headroom.Least(quota); units < least {
		t["max"].Fail("max = %s is less than the least automatic headroom, 0.2 %% of the quota (%d): use more, or write headroom = %d", t["max"].show(), least, units)
		return 0, false
	}
	return units, true
}

// readPart reads units, or a percentage of the quota rounded up.
func readPart(node Node, quota int64) (int64, bool) {
	if !node.IsText() {
		return node.Units(0)
	}
	text, _ := node.Text()
	number, isPercent := strings.CutSuffix(text, "%")
	share, ok := new(big.Rat).SetString(number)
	if !isPercent || !ok || strings.Trim(number, "0123456789.") != "" || share.Cmp(big.NewRat(100, 1)) > 0 {
		or := ""
		if node.Key() == "headroom" {
			or = ", or \"auto\""
		}
		node.Fail("%s = %q: write units, or a percentage from \"0%%\" to \"100%%\"%s", node.Key(), text, or)
		return 0, false
	}
	return percentOf(share, quota), true
}

// percentOf is a percentage of a quota, rounded up.
func percentOf(percent *big.Rat, quota int64) int64 {
	return limit.RoundUp(new(big.Rat).Mul(percent, big.NewRat(quota, 100))).Int64()
}

// checkAuto finds what an automatic headroom cannot be worked out for.
func (c *Config) checkAuto(node Node, l limit.Limit, upstream string) {
	if !l.CanDivide() {
		node.Fail("headroom = %s: limit %s is a %s limit, and only a rolling or a calendar limit can have an automatic headroom: write units or a percentage", autoShown(node), l.Name, l.Window.Kind)
		return
	}
	if driver.KeptOf(upstream+"/", c.Store.History, c.Store.NoHistory) < 0 {
		node.Fail("headroom = %s: it is worked out from the history, of which this upstream keeps none: leave out its history = \"0\", or write a headroom in units", autoShown(node))
		return
	}
	if kept, needs := driver.KeptFor(c.Store.History), headroom.Reaches(l.Window); kept < needs {
		days := (needs + day - 1) / day
		is := "keeps"
		if c.Store.History == 0 {
			is = "by default keeps"
		}
		node.Fail("headroom = %s: it is worked out from %d days of history, three full periods of limit %s and two weeks before, and the file %s %d: write history = \"%dd\" at the top of the file, or a headroom in units", autoShown(node), days, l.Name, is, kept/day, days)
	}
	if part := c.Store.OutageAllowance; part > l.Auto/c.Store.Hosts {
		node.Warn("headroom = %s: outage_allowance = %d for each of %d hosts is more than the automatic headroom of limit %s may be (%d), so each host may spend only %d while the store is out of reach, and nothing is left for drift: write a higher max, or a lower outage_allowance", autoShown(node), part, c.Store.Hosts, l.Name, l.Auto, l.Auto/c.Store.Hosts)
	}
}

// autoShown is how the file asks for an automatic headroom.
func autoShown(node Node) string {
	if node.IsTable() {
		return "{ auto = true, max = … }"
	}
	return node.show()
}

// day is in µs.
const day = int64(24 * time.Hour / time.Microsecond)

// warnUnreported warns of an automatic headroom that no report ever lowers.
func (u *Upstream) warnUnreported(node Node, l limit.Limit) {
	if l.Auto > 0 && !slices.ContainsFunc(u.Feedback.Reports, func(r feedback.Report) bool { return r.Limit == l.Name }) {
		node.Warn("limit %s has an automatic headroom, and no report rule says how much of it the upstream counts: the headroom stays at its maximum (%d), unless a program reports; write [upstream.%s.report.NAME] with limit = %q, or a headroom in units", l.Name, l.Auto, u.Name, l.Name)
	}
}
