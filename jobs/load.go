package jobs

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/suggest"
)

// The durations and bounds of a job that sets none.
const (
	DefaultTimeout = 5 * time.Minute
	DefaultGrace   = 10 * time.Second
	DefaultMaxWait = 30 * time.Second
	// deferWait is how long a run waits for units before it is deferred instead.
	deferWait = time.Second
	// DefaultMaxLate is how late a tick may be caught up, DefaultCatchUpLimit how many at
	// most.
	DefaultMaxLate      = 24 * time.Hour
	DefaultCatchUpLimit = 10
	DefaultRetryWait    = 5 * time.Second
	DefaultHistory      = 7 * 24 * time.Hour
)

// maxParallel is the largest value of parallel.
const maxParallel = 1000

// Load reads the job tables of a configuration. Every error goes into the configuration's
// own list, [config.Config.Err], with file, line and what to write instead; Load returns
// only the jobs without errors.
func Load(cfg *config.Config) []*Job {
	l := &loader{cfg: cfg, whole: cfg.Err() == nil, outputs: map[string]string{}, unruled: map[string]bool{}, zones: map[string]*time.Location{}}
	var list []*Job
	for _, node := range cfg.Jobs {
		before := faults(cfg)
		if j := l.job(node); faults(cfg) == before {
			list = append(list, j)
		}
	}
	if cfg.Err() == nil {
		warnUneven(cfg, list)
	}
	return list
}

// loader reads jobs against the rest of the configuration.
type loader struct {
	cfg *config.Config
	// whole: the other tables have no errors. What is missing from a faulty table
	// would cause errors of its own here.
	whole bool
	// outputs maps each output, apart from region and tick, to its job.
	outputs map[string]string
	// unruled are the upstreams already reported to have no refusal rule.
	unruled map[string]bool
	// zones caches time zones: each is a file.
	zones map[string]*time.Location
}

// faults counts the errors found so far.
func faults(cfg *config.Config) int {
	var list config.Errors
	if errors.As(cfg.Err(), &list) {
		return len(list)
	}
	return 0
}

// job reads one [job.NAME] table.
func (l *loader) job(node config.Node) *Job {
	before := faults(l.cfg)
	j := &Job{Name: node.Key(), cfg: l.cfg, Timeout: DefaultTimeout, Grace: DefaultGrace, MaxWait: DefaultMaxWait,
		CatchUp: CatchUpNone, CatchUpLimit: DefaultCatchUpLimit, MaxLate: DefaultMaxLate, Overlap: Skip, OnExhausted: StopExhausted, RetryWait: DefaultRetryWait, History: DefaultHistory}
	t := table(node, "budget", "schedule", "timezone", "regions", "stagger", "on_store_error", "timeout", "grace",
		"floor", "parallel", "catch_up", "catch_up_limit", "max_late", "overlap", "on_exhausted", "retries", "retry_wait", "history", "checkpoint", "max_wait", "operation", "needs", "hold", "stale_after", "started_by", "missed_after", "ping", "ping_env", "ping_file", "fetch", "command", "meter", "keep_secret")
	upstream, known := l.budget(node, t["budget"], j)
	l.schedule(node, t, j)
	j.readRegions(t["regions"])
	j.startedBy(t)
	j.readSpans(t)
	j.readTicks(t)
	l.ping(t, j)
	j.StartWait = j.MaxWait
	if j.OnExhausted == DeferExhausted && !t["max_wait"].Exists() {
		j.StartWait = deferWait
	}
	if policy := t["on_store_error"].Policy(); policy != "" {
		j.OnStoreError = policy
		if why := l.cfg.OpenIsClosed(upstream); policy == budget.Open && why != "" {
			t["on_store_error"].Warn("%s", why)
		}
	}
	j.Floor, _ = t["floor"].Units(0)
	if parallel, ok := t["parallel"].Number(1, maxParallel); ok {
		j.Parallel = int(parallel)
	}
	operation := l.operation(t["operation"], upstream, known)
	switch {
	case t["started_by"].Exists():
	case t["fetch"].Exists() && t["command"].Exists():
		t["command"].Fail("fetch and command are both given: keep one, or make two jobs")
	case t["fetch"].Exists():
		l.fetch(t["fetch"], j, operation, upstream, known)
	case t["command"].Exists():
		j.readCommand(t["command"])
	default:
		node.Fail("job %s does nothing: write [job.%s.fetch] with an operation, a url and an output, started_by = %q if your crontab starts it, or %s", j.Name, j.Name, StartedByCron, commandExample)
	}
	if j.StartedBy == StartedByDaemon {
		j.readMeter(t, upstream, known)
	}
	l.needs(node, t, j, operation, upstream, known)
	l.hold(t["hold"], j, upstream, known)
	if known {
		j.warnCuts(t["on_exhausted"])
	}
	switch right := l.whole && faults(l.cfg) == before; {
	case right && j.Command != nil:
		j.warnCommand(t["command"])
	case right && j.Fetch != nil:
		l.warnRefusals(t["budget"], upstream)
	}
	return j
}

// warnCuts warns of deferral where a run that is cut does not go on.
func (j *Job) warnCuts(node config.Node) {
	if j.OnExhausted != DeferExhausted || j.Hold != HoldNone || j.Checkpoint > 0 {
		return
	}
	known, advice := j.stated, fmt.Sprintf(", or hold = %q, so that it is not cut", HoldRun)
	if single := len(j.bound) == 1 && j.bound[0].Calls == 1; known == nil || single {
		known = j.bound
	}
	calls := int64(0)
	for _, a := range known {
		calls += min(a.Calls, limit.MaxUnits)
	}
	if known == nil && j.Fetch != nil { // it has as many pages as there are
		calls, advice = limit.MaxUnits, ""
	}
	if calls > 1 {
		node.Warn("a run of job %s that is cut between two calls does not go on when its units return; give the job checkpoint = \"24h\", so that it goes on where it was%s", j.Name, advice)
	}
}

// budget finds the job's upstream and credential.
func (l *loader) budget(job, node config.Node, j *Job) (config.Upstream, bool) {
	if !node.Exists() {
		job.Fail("job %s has no budget: write budget = \"upstream/credential\"%s", j.Name, l.budgets())
		return config.Upstream{}, false
	}
	name, ok := node.Text()
	if !ok {
		return config.Upstream{}, false
	}
	upstream, credential, err := l.cfg.Find(name)
	if err != nil {
		node.Fail("budget = %q: no such budget%s%s", name, l.budgets(), suggest.DidYouMean(name, l.cfg.Budgets()))
		return config.Upstream{}, false
	}
	j.Budget, j.credential, j.upstream, j.BudgetParallel = name, credential, upstream.Name, upstream.Parallel
	return upstream, l.whole
}

// budgets lists the configured budgets, for messages.
func (l *loader) budgets() string {
	if names := l.cfg.Budgets(); len(names) > 0 {
		return "; configured: " + strings.Join(names, ", ")
	}
	return ""
}

// operation reads an operation that must be priced and counted.
func (l *loader) operation(node config.Node, upstream config.Upstream, known bool) string {
	name, ok := node.Text()
	if ok && checkOperation(node, name, upstream, known) {
		return name
	}
	return ""
}

// checkOperation reports an operation that has no price or that no limit covers.
func checkOperation(node config.Node, name string, upstream config.Upstream, known bool) bool {
	if !driver.ValidName(name) {
		node.Fail("operation %q: use letters, digits, '.', '_' and '-', at most 63", name)
		return false
	}
	if !known {
		return true
	}
	if _, priced := upstream.Costs[name]; !priced && !upstream.Unknown.Allowed {
		node.Fail("operation %q has no price: add it to [upstream.%s.costs], or correct the name%s", name, upstream.Name,
			suggest.DidYouMean(name, slices.Collect(maps.Keys(upstream.Costs))))
		return false
	}
	if !slices.ContainsFunc(upstream.Limits, func(l limit.Limit) bool { return l.Covers(name) }) {
		node.Fail("no limit covers operation %q: add it to a limit's operations in [upstream.%s.limit]", name, upstream.Name)
		return false
	}
	return true
}

func (j *Job) readRegions(node config.Node) {
	j.Regions = []string{""}
	names, ok := node.Texts()
	if !ok {
		return
	}
	if len(names) == 0 {
		node.Fail("regions is empty: name some, or leave the key out for one run without a region")
		return
	}
	seen := map[string]bool{}
	for _, name := range names {
		switch {
		case !driver.ValidName(name):
			node.Fail("region %q: a name is a letter or digit followed by up to 62 letters, digits, '.', '_' and '-'", name)
		case seen[name]:
			node.Fail("region %q is listed twice: take one out", name)
		}
		seen[name] = true
	}
	j.Regions = names
}

func (j *Job) readSpans(t map[string]config.Node) {
	for _, span := range []struct {
		key         string
		least, most time.Duration
		into        *time.Duration
	}{
		{"stagger", 0, 24 * time.Hour, &j.Stagger},
		{"timeout", time.Second, 24 * time.Hour, &j.Timeout},
		{"grace", 0, time.Hour, &j.Grace},
		{"max_wait", 0, time.Hour, &j.MaxWait},
		{"max_late", onTime, 366 * 24 * time.Hour, &j.MaxLate},
		{"retry_wait", 100 * time.Millisecond, maxRetryWait, &j.RetryWait},
		{"history", time.Hour, 366 * 24 * time.Hour, &j.History},
		{"checkpoint", time.Minute, 366 * 24 * time.Hour, &j.Checkpoint},
		{"stale_after", time.Minute, 366 * 24 * time.Hour, &j.StaleAfter},
	} {
		if d, ok := t[span.key].Duration(span.least, span.most); ok {
			*span.into = d
		}
	}
	if j.Schedule != nil && j.Stagger > 0 && j.Stagger >= j.Schedule.LeastGap() {
		t["stagger"].Warn("stagger = %q is not less than the %s between two ticks: passes would overlap and be skipped", j.Stagger, j.Schedule.LeastGap())
	}
}

// needs reads what must fit before a run starts: the job's needs, else one call of its
// operation, else one unit. It reports a job that could never start.
func (l *loader) needs(job config.Node, t map[string]config.Node, j *Job, operation string, upstream config.Upstream, known bool) {
	j.Needs = budget.Needs{}
	for _, node := range t["needs"].List() {
		if node.FailUnquotedDots() {
			continue
		}
		calls, ok := node.Number(1, limit.MaxUnits)
		if ok && checkOperation(node, node.Key(), upstream, known) {
			j.Needs[node.Key()] = calls
		}
	}
	if t["needs"].IsTable() && len(t["needs"].List()) == 0 {
		t["needs"].Fail("needs is empty: write { \"operation\" = 1 }, or take it out")
	}
	at := t["needs"]
	if !at.Exists() {
		at = job
		switch {
		case j.Fetch != nil && j.Fetch.Operation != "":
			j.Needs[j.Fetch.Operation] = 1
		case operation != "":
			j.Needs[operation] = 1
		default:
			j.Needs[""] = 1
		}
	}
	if known {
		j.foresee(upstream, t["needs"].Exists())
	}
	if t["floor"].Exists() {
		at = t["floor"]
	}
	if known {
		checkFits(at, j, upstream)
	}
}

// checkFits reports a job whose needs and floor together exceed a limit, or whose needs can
// never fit beside what the limit guarantees to others.
func checkFits(node config.Node, j *Job, upstream config.Upstream) {
	for _, l := range upstream.Limits {
		if l.Window.Kind == limit.Concurrent || l.Observe || upstream.Observe { // a plain charge is never open
			continue
		}
		bound := l.Bound(j.Floor, false)
		left := bound
		covered := false
		for operation, calls := range j.Needs {
			units := int64(1)
			if operation != "" {
				units = price(upstream, operation)
			}
			if operation == "" && !l.CoversAll() || operation != "" && !l.Covers(operation) {
				continue
			}
			covered = true
			if each := l.Amount(units); each > 0 && (left < 0 || calls > left/each) {
				left = -1
			} else {
				left -= calls * each
			}
		}
		needs, most := bound-left, l.Most(l.ShareOf(j.Name))
		if j.StartedBy == StartedByCron && covered && (left < 0 || needs > most) { // it starts all the same
			node.Warn("a run of job %s needs more than limit %s (%d) leaves it beside its floor and what is guaranteed to other jobs: it will be cut, unless units return while it runs", j.Name, l.Name, l.Limit)
			return
		}
		if covered && left < 0 {
			beside := ""
			if j.Floor > 0 {
				beside = fmt.Sprintf(" and its floor of %d", j.Floor)
			}
			node.Fail("job %s could never start: its needs%s exceed limit %s (%d); lower needs or floor, or raise the limit", j.Name, beside, l.Name, l.Limit)
			return
		}
		if covered && needs > most {
			node.Fail("job %s could never start: it needs %d, and limit %s (%d) leaves it %d beside what is guaranteed to other jobs; lower needs, guarantee less to the others, or put the job into a share",
				j.Name, needs, l.Name, l.Limit, most)
			return
		}
	}
}

// price is what a call costs.
func price(upstream config.Upstream, operation string) int64 {
	if cost, known := upstream.Costs[operation]; known {
		return cost.Units
	}
	return upstream.Unknown.Units
}

// warnUneven warns of guarantees that the calls of the share's jobs can never spend in full,
// although calls at other prices could. It looks at shares for configured jobs alone, whose
// operations are known.
func warnUneven(cfg *config.Config, list []*Job) {
	for _, u := range cfg.Upstreams {
		for _, l := range u.Limits {
			for _, s := range l.Shares {
				prices, first := pricesOf(s, l, u, list)
				left := limit.Unspendable(s.Guarantee, prices)
				if l.Counts != limit.CountUnits || left == 0 || limit.Unspendable(s.Guarantee, allPrices(l, u)) > 0 {
					continue // package config has warned of the last
				}
				at := slices.IndexFunc(cfg.Jobs, func(node config.Node) bool { return node.Key() == first })
				cfg.Jobs[at].Warn("job %s: of the %d units that share %s is guaranteed in limit %s, %d are less than the cheapest call of its jobs costs (%d): use a multiple of a price",
					first, s.Guarantee, s.Name, l.Name, left, slices.Min(prices))
			}
		}
	}
}

// allPrices are those of the operations that a limit covers.
func allPrices(l limit.Limit, u config.Upstream) (prices []int64) {
	for operation, cost := range u.Costs {
		if l.Covers(operation) {
			prices = append(prices, cost.Units)
		}
	}
	return prices
}

// pricesOf are the prices above 0 of all calls that the jobs of a share make and a limit
// counts, and the first of these jobs; none if they are not all known.
func pricesOf(s limit.Share, l limit.Limit, u config.Upstream, list []*Job) (prices []int64, first string) {
	for _, name := range s.Jobs {
		at := slices.IndexFunc(list, func(j *Job) bool { return j.Name == name && j.upstream == u.Name })
		if at < 0 {
			return nil, ""
		}
		for operation := range list[at].Needs {
			switch units := price(u, operation); {
			case operation == "":
				return nil, ""
			case l.Covers(operation) && units > 0:
				prices = append(prices, units)
			}
		}
	}
	return prices, s.Jobs[0]
}
