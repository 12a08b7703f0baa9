package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/suggest"
)

// readLimit reads one limit; false if it has an error.
func (c *Config) readLimit(node Node, u Upstream) (limit.Limit, bool) {
	before := len(node.doc.errors)
	checkName(node, "limit")
	if !node.IsTable() {
		node.List() // adds the error
		return limit.Limit{}, false
	}
	t := node.Table("mode", "quota", "headroom", "limit", "counts", "operations", "per",
		"window", "precision", "calendar", "timezone", "starts", "guard", "refill", "concurrent")
	l := limit.Limit{Name: node.Key(), Counts: limit.CountUnits, Observe: readMode(t["mode"])}
	if t["mode"].Exists() && u.Observe && !l.Observe {
		t["mode"].Warn("mode = %s has no effect: upstream %s is in observe mode, and so are all its limits", t["mode"].show(), u.Name)
	}
	if counts, ok := t["counts"].OneOf(string(limit.CountUnits), string(limit.CountCalls)); ok {
		l.Counts = limit.Counts(counts)
	}
	c.readQuota(node, t, &l)
	l.Operations = readOperations(t["operations"], u)
	if _, ok := t["per"].OneOf("operation"); ok {
		l.PerOperation = true
	}
	l.Window = readWindow(node, t)
	if l.Auto > 0 && len(node.doc.errors) == before {
		c.checkAuto(t["headroom"], l, u.Name)
	}
	if l.Window.Kind == limit.Bucket && c.Store.Hosts > 1 {
		l.OutagePart = 0 // no host knows how full the others have made it
	}
	if l.Window.Kind == limit.Concurrent {
		if t["counts"].Exists() && l.Counts != limit.CountCalls {
			t["counts"].Fail("counts = \"units\": a concurrent limit counts open reservations; leave counts out")
		}
		l.Counts = limit.CountCalls
	}
	if l.Window.Kind == limit.Bucket && len(node.doc.errors) == before {
		if err := l.CheckBucket(); err != nil {
			t["refill"].Fail("refill = %s: %s", t["refill"].show(), err)
		}
	}
	return l, len(node.doc.errors) == before
}

// readQuota reads quota and headroom, or a cap of the user's own.
func (c *Config) readQuota(node Node, t map[string]Node, limit *limit.Limit) {
	quota, hasQuota := t["quota"].Units(1)
	own, hasOwn := t["limit"].Units(0)
	switch {
	case t["quota"].Exists() && t["limit"].Exists():
		t["limit"].Fail("quota and limit are both given: write what the upstream grants as quota, with headroom; or a cap of your own as limit alone")
	case !t["quota"].Exists() && !t["limit"].Exists():
		node.Fail("limit %s bounds nothing: write quota (what the upstream grants) or limit (a cap of your own)", node.Key())
	case hasOwn:
		limit.Limit = own
	case hasQuota:
		limit.Quota, limit.Limit = quota, quota
	}
	if !t["headroom"].Exists() {
		return
	}
	if !t["quota"].Exists() {
		t["headroom"].Fail("headroom without quota: headroom is the part of a quota that is kept back; lower the limit instead")
		return
	}
	if !hasQuota {
		return
	}
	headroom, automatic, ok := readHeadroom(t["headroom"], quota)
	if !ok {
		return
	}
	if headroom >= quota {
		t["headroom"].Fail("headroom %s leaves nothing of the quota of %d: use less", t["headroom"].show(), quota)
		return
	}
	*limit = limit.WithHeadroom(headroom)
	if automatic {
		limit.Auto = headroom
	}
	limit.OutagePart = min(c.Store.OutageAllowance, headroom/c.Store.Hosts) * c.Store.Hosts
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
			node.Fail("operations: %q is not a pattern: write a name, \"prefix.*\" or \"!name\"", pattern)
			continue
		}
		matched := false
		for operation := range u.Costs {
			matched = matched || limit.MatchOperation(name, operation)
		}
		if !matched {
			node.Fail("operations: %q has no price: add it to [upstream.%s.costs], or correct the name%s", pattern, u.Name,
				suggest.DidYouMean(name, slices.Collect(maps.Keys(u.Costs))))
		}
	}
	return patterns
}
