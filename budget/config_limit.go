package budget

import (
	"math/big"
	"strings"
	"time"
)

// laterKeys are keys of kinds of limit that this version does not have.
var laterKeys = []string{"precision", "guard", "refill", "concurrent", "per"}

// maxWindow is the longest rolling window.
const maxWindow = 366 * 24 * time.Hour

// readLimit reads one limit; false when something is wrong with it.
func (c *Config) readLimit(node Node, u Upstream) (Limit, bool) {
	before := len(node.doc.errors)
	checkName(node, "limit")
	if !node.IsTable() {
		node.List() // notes it
		return Limit{}, false
	}
	t := node.table([]string{"quota", "headroom", "limit", "counts", "operations", "window", "calendar", "timezone", "starts"}, laterKeys)
	for _, key := range laterKeys {
		if t[key].Exists() {
			t[key].Fail("%s is not supported by this version: use a rolling window or a calendar", key)
		}
	}
	limit := Limit{Name: node.Key(), Counts: CountUnits}
	if counts, ok := t["counts"].OneOf(string(CountUnits), string(CountCalls)); ok {
		limit.Counts = Counts(counts)
	}
	c.readQuota(node, t, &limit)
	limit.Operations = readOperations(t["operations"], u)
	limit.Window = readWindow(node, t)
	return limit, len(node.doc.errors) == before
}

// readQuota reads quota and headroom, or a limit of our own.
func (c *Config) readQuota(node Node, t map[string]Node, limit *Limit) {
	quota, hasQuota := t["quota"].Units(1)
	own, hasOwn := t["limit"].Units(0)
	switch {
	case t["quota"].Exists() && t["limit"].Exists():
		t["limit"].Fail("quota and limit are both given: write what the upstream grants as quota, with headroom; or a cap of our own as limit alone")
	case !t["quota"].Exists() && !t["limit"].Exists():
		node.Fail("limit %s bounds nothing: write quota (what the upstream grants) or limit (a cap of our own)", node.Key())
	case hasOwn:
		limit.Limit = own
	case hasQuota:
		limit.Quota, limit.Limit = quota, quota
	}
	if !t["headroom"].Exists() {
		return
	}
	if !t["quota"].Exists() {
		t["headroom"].Fail("headroom without quota: it is kept back of a quota; lower the limit instead")
		return
	}
	headroom, ok := readHeadroom(t["headroom"], quota)
	if !ok || !hasQuota {
		return
	}
	if headroom >= quota {
		t["headroom"].Fail("headroom %s leaves nothing of the quota of %d: use less", t["headroom"].show(), quota)
		return
	}
	limit.Headroom, limit.Limit = headroom, quota-headroom
	limit.OutagePart = min(c.Store.OutageAllowance, headroom/c.Store.Hosts) * c.Store.Hosts
}

// readHeadroom reads units, or a percentage of the quota rounded up.
func readHeadroom(node Node, quota int64) (int64, bool) {
	if !node.IsText() {
		return node.Units(0)
	}
	text, _ := node.Text()
	number, isPercent := strings.CutSuffix(text, "%")
	share, ok := new(big.Rat).SetString(number)
	if !isPercent || !ok || strings.Trim(number, "0123456789.") != "" || share.Cmp(big.NewRat(100, 1)) > 0 {
		node.Fail("headroom = %q: write units, or a percentage from \"0%%\" to \"100%%\"", text)
		return 0, false
	}
	share.Mul(share, big.NewRat(quota, 100))
	up := new(big.Int).Add(share.Num(), new(big.Int).Sub(share.Denom(), big.NewInt(1)))
	return up.Quo(up, share.Denom()).Int64(), true
}

// readOperations reads the filter; each pattern must match a priced operation.
func readOperations(node Node, u Upstream) []string {
	patterns, ok := node.Texts()
	if ok && len(patterns) == 0 {
		node.Fail("operations is empty: name some, or leave the key out to cover all")
	}
	for _, pattern := range patterns {
		name := strings.TrimPrefix(pattern, "!")
		if bare, isPrefix := strings.CutSuffix(name, "*"); strings.Contains(bare, "*") || isPrefix && !strings.HasSuffix(bare, ".") {
			node.Fail("operations: %q is no pattern: write a name, \"prefix.*\" or \"!name\"", pattern)
			continue
		}
		matched := false
		for operation := range u.Costs {
			matched = matched || matchOperation(name, operation)
		}
		if !matched {
			node.Fail("operations: %q has no price: add it to [upstream.%s.costs], or mend the name", pattern, u.Name)
		}
	}
	return patterns
}

// readWindow reads a rolling window or a calendar.
func readWindow(node Node, t map[string]Node) Window {
	hasLater := false
	for _, key := range []string{"refill", "concurrent"} {
		hasLater = hasLater || t[key].Exists()
	}
	switch {
	case t["window"].Exists() && t["calendar"].Exists():
		t["calendar"].Fail("window and calendar are both given: write two limits, one of each")
		return Window{}
	case t["window"].Exists():
		for _, key := range []string{"timezone", "starts"} {
			if t[key].Exists() {
				t[key].Fail("%s belongs to a calendar: a rolling window has no reset; write calendar instead of window, or take %s out", key, key)
			}
		}
		length, _ := t["window"].Duration(time.Millisecond, maxWindow)
		return RollingWindow(length)
	case t["calendar"].Exists():
		return readCalendar(t)
	case !hasLater:
		node.Fail("limit %s has no window: write window = \"24h\" or calendar = \"day\"", node.Key())
	}
	return Window{}
}

// readCalendar reads all keys of a calendar, so that each fault is found.
func readCalendar(t map[string]Node) Window {
	before := len(t["calendar"].doc.errors)
	length, _ := t["calendar"].OneOf(Quarter, Hour, Day, Month)
	zone := "UTC"
	if text, ok := t["timezone"].Text(); ok {
		zone = text
		if _, err := NewCalendar(Day, zone, 0); err != nil {
			t["timezone"].Fail("%s", err)
		}
	}
	starts, hasStart := readTimeOfDay(t["starts"])
	if hasStart && (length == Quarter || length == Hour) {
		t["starts"].Fail("starts: only a day or a month has a start of its own, not %q", length)
	}
	if len(t["calendar"].doc.errors) > before {
		return Window{}
	}
	calendar, err := NewCalendar(length, zone, starts)
	if err != nil {
		t["calendar"].Fail("%s", err)
		return Window{}
	}
	return CalendarWindow(calendar)
}

// readTimeOfDay reads "HH:MM" as the span since midnight.
func readTimeOfDay(node Node) (time.Duration, bool) {
	text, ok := node.Text()
	if !ok {
		return 0, false
	}
	at, err := time.Parse("15:04", text)
	if err != nil {
		node.Fail("%s = %q is no time of day: write \"00:00\" to \"23:59\"", node.Key(), text)
		return 0, false
	}
	return time.Duration(at.Hour())*time.Hour + time.Duration(at.Minute())*time.Minute, true
}
