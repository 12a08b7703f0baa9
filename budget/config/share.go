package config

import (
	"cmp"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/suggest"
)

// readShares reads the share tables of an upstream, and divides its limits. Its limits and
// costs must have been read.
func (u *Upstream) readShares(node Node) {
	for _, table := range node.List() {
		if table.IsTable() && checkName(table, "share") {
			u.readShare(table)
		}
	}
	u.boundShares(node)
}

// readShare reads one share.
func (u *Upstream) readShare(node Node) {
	t := node.Table("jobs", "units", "lapse", "limits")
	jobs := readJobPatterns(node, t["jobs"])
	for _, name := range jobs {
		if !strings.HasSuffix(name, "*") {
			u.shareJobs = append(u.shareJobs, shareJob{t["jobs"], node.Key(), name})
		}
	}
	if missing(t["units"]) {
		node.Fail("share %s guarantees nothing: write units = 6_000, or a percentage of each limit such as \"60%%\"", node.Key())
	}
	lapse, plan := readLapse(t["lapse"])
	chosen := u.dividedLimits(node, t["limits"])
	if len(jobs) == 0 {
		return
	}
	for _, i := range chosen {
		l := &u.Limits[i]
		guarantee, ok := readGuarantee(t["units"], *l)
		if !ok {
			return
		}
		share := limit.Share{Name: node.Key(), Jobs: jobs, Guarantee: guarantee, Plan: plan}
		if lapse > 0 {
			if l.Window.Kind != limit.CalendarKind {
				t["lapse"].Fail("lapse = %s: limit %s has no reset before which a guarantee could lapse, since its window rolls; name only calendar limits in limits and write another share for %s, or write \"never\"", t["lapse"].show(), l.Name, l.Name)
				return
			}
			share.Lapse = lapse
		}
		if !u.addShare(node, t, l, share) {
			return
		}
	}
}

// addShare divides a limit further; false if that is an error.
func (u *Upstream) addShare(node Node, t map[string]Node, l *limit.Limit, share limit.Share) bool {
	sum := share.Guarantee
	for _, other := range l.Shares {
		sum += other.Guarantee
		if a, b, both := share.Overlaps(other); both {
			t["jobs"].Fail("jobs: %q of share %s and %q of share %s can be the same job: in limit %s a job belongs to one share", a, share.Name, b, other.Name, l.Name)
			return false
		}
	}
	if sum > l.Limit {
		t["units"].Fail("units = %s: the shares of limit %s guarantee %d, and its limit is %d: guarantee less; another share for the same jobs may guarantee less of this limit than of others", t["units"].show(), l.Name, sum, l.Limit)
		return false
	}
	divided := *l
	divided.Shares = append(slices.Clone(l.Shares), share)
	if err := divided.Validate(); err != nil {
		node.Fail("limit %s: %s", l.Name, err)
		return false
	}
	l.Shares = divided.Shares
	u.warnUnevenGuarantee(t["units"], *l, share)
	return true
}

// readJobPatterns reads whose charges belong to a share.
func readJobPatterns(share, node Node) []string {
	if missing(node) {
		share.Fail("share %s is for no jobs: write jobs = [\"nightly\", \"charts.*\"]", share.Key())
		return nil
	}
	patterns, ok := node.Texts()
	if ok && len(patterns) == 0 {
		node.Fail("jobs is empty: name the jobs that the share is for")
	}
	for _, pattern := range patterns {
		bare, isPrefix := strings.CutSuffix(pattern, "*")
		if isPrefix && !strings.HasSuffix(bare, ".") || !driver.ValidName(cmp.Or(strings.TrimSuffix(bare, "."), "-")) {
			node.Fail("jobs: %q is not a pattern: write a job's name or \"prefix.*\"", pattern)
			return nil
		}
	}
	return patterns
}

// readLapse reads how long before a reset a guarantee ends, in µs (0: never), or that it goes
// by what the jobs may still need.
func readLapse(node Node) (before int64, plan bool) {
	if text, ok := node.Text(); ok && (text == "never" || text == "plan") {
		return 0, text == "plan"
	}
	lapse, ok := node.Duration(0, 31*24*time.Hour)
	if ok && lapse == 0 {
		node.Fail("lapse = %s: a guarantee that ends at the reset does not lapse: write \"never\"", node.show())
	}
	return lapse.Microseconds(), false
}

// dividedLimits are the indexes of the limits that a share divides: those that it names,
// else each rolling or calendar limit that counts units and covers every operation.
func (u *Upstream) dividedLimits(share, node Node) (chosen []int) {
	names, given := node.Texts()
	if !given {
		for i, l := range u.Limits {
			if l.CanDivide() && l.Counts == limit.CountUnits && l.CoversAll() && !l.PerOperation {
				chosen = append(chosen, i)
			}
		}
		if len(chosen) == 0 && !node.Exists() && len(u.Limits) > 0 {
			share.Fail("share %s divides no limit: none is a rolling or a calendar one that counts units and covers every operation; name some in limits", share.Key())
		}
		return chosen
	}
	if len(names) == 0 {
		node.Fail("limits is empty, so share %s would divide nothing: name the limits to divide, or take the key out to divide each that counts units and covers every operation", share.Key())
	}
	all := make([]string, len(u.Limits))
	for i, l := range u.Limits {
		all[i] = l.Name
	}
	for _, name := range names {
		i := slices.Index(all, name)
		switch {
		case i < 0 && slices.Contains(u.limitTables, name): // it has an error of its own
		case i < 0:
			node.Fail("limits: there is no limit %q%s", name, suggest.DidYouMean(name, all))
		case !u.Limits[i].CanDivide():
			node.Fail("limits: %s is a %s limit: only a rolling or a calendar limit can be divided", name, u.Limits[i].Window.Kind)
		case slices.Contains(chosen, i):
			node.Fail("limits names %s twice: take one out", name)
		default:
			chosen = append(chosen, i)
		}
	}
	return chosen
}

// readGuarantee reads units, or a percentage of the limit rounded down.
func readGuarantee(node Node, l limit.Limit) (int64, bool) {
	if !node.IsText() {
		return node.Units(0)
	}
	text, _ := node.Text()
	number, isPercent := strings.CutSuffix(text, "%")
	part, ok := new(big.Rat).SetString(number)
	if !isPercent || !ok || strings.Trim(number, "0123456789.") != "" || part.Cmp(big.NewRat(100, 1)) > 0 {
		node.Fail("units = %q: write units, or a percentage of each limit from \"0%%\" to \"100%%\"", text)
		return 0, false
	}
	part.Mul(part, big.NewRat(l.Limit, 100))
	return new(big.Int).Quo(part.Num(), part.Denom()).Int64(), true
}
