package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// readConfig reads all tables but the jobs'. The tables of unread jobs were left out.
func readConfig(path string, root Node, unread ...string) *Config {
	c := &Config{File: path, doc: root.doc, unread: unread, Store: Store{URL: DefaultStoreURL, Prefix: "quotactl", Hosts: 1, RefusalMemory: DefaultRefusalMemory}}
	top := root.Table("state_dir", "history", "store", "upstream", "job", "alert")
	if dir, ok := filled(top["state_dir"]); ok {
		c.StateDir = c.Path(dir)
	}
	c.readStore(top["store"])
	c.Store.History, _ = top["history"].Duration(leastHistory, mostHistory)
	patterns := newMatcher()
	for _, node := range top["upstream"].List() {
		c.Upstreams = append(c.Upstreams, c.readUpstream(node, patterns))
	}
	if missing(top["upstream"]) {
		root.Fail("no upstream: write [upstream.NAME] with costs, a limit and a credential")
	}
	for _, node := range top["job"].List() {
		if checkName(node, "job") {
			c.Jobs = append(c.Jobs, node)
		}
	}
	c.readJobs()
	c.warnShareJobs()
	for _, node := range top["alert"].List() {
		c.Alerts = append(c.Alerts, c.readAlert(node))
	}
	return c
}

// leastHistory and mostHistory bound how long the spend by the hour may be kept.
const (
	leastHistory = 2 * 24 * time.Hour
	mostHistory  = 3660 * 24 * time.Hour
)

// mostRefusalMemory bounds for how long what other processes give back may go unnoticed.
const mostRefusalMemory = 10 * time.Second

// storeSchemes are the stores a URL may name.
var storeSchemes = []string{"sqlite:", "redis://", "rediss://", "unix://", "redis+sentinel://", "redis+cluster://", "redis+ring://"}

// CheckStoreURL reports whether a URL names a store; package open checks the rest of
// its form. The error says what is wrong and does not contain the URL.
func CheckStoreURL(url string) error {
	switch {
	case !slices.ContainsFunc(storeSchemes, func(scheme string) bool { return strings.HasPrefix(url, scheme) }):
		return fmt.Errorf("does not name a store: begin it with %s", strings.Join(storeSchemes, ", "))
	case url == "sqlite:":
		return fmt.Errorf("names no file: write %q", DefaultStoreURL)
	}
	return nil
}

func (c *Config) readStore(node Node) {
	t := node.Table("url", "prefix", "timeout", "hosts", "outage_allowance", "refusal_memory", "password_env", "password_file")
	if url, ok := t["url"].Text(); ok {
		if err := CheckStoreURL(url); err != nil {
			t["url"].Fail("url %s", err)
		} else {
			c.storeURL = t["url"]
		}
		c.Store.URL = url
	}
	if file, ok := strings.CutPrefix(c.Store.URL, "sqlite:"); ok {
		c.Store.URL = "sqlite:" + c.Path(file)
	}
	if prefix, ok := t["prefix"].Text(); ok {
		if !driver.ValidName(prefix) {
			t["prefix"].Fail("prefix = %q: use letters, digits, '.', '_' and '-', at most 63", prefix)
		}
		c.Store.Prefix = prefix
	}
	c.Store.Timeout, _ = t["timeout"].Duration(time.Millisecond, time.Minute)
	if hosts, ok := t["hosts"].Number(1, 1_000_000); ok {
		c.Store.Hosts = hosts
	}
	c.Store.OutageAllowance, _ = t["outage_allowance"].Units(0)
	if span, ok := t["refusal_memory"].Duration(0, mostRefusalMemory); ok {
		c.Store.RefusalMemory = span
	}
	if c.Store.Hosts > 1 && c.Store.OutageAllowance == 0 && !t["outage_allowance"].Exists() {
		t["hosts"].Warn("hosts = %d without outage_allowance: after a loss of the store's data no host may spend anything until all hosts have reported or a minute has passed; write how many units each may spend meanwhile, or 0 if nothing is right", c.Store.Hosts)
	}
	c.Store.PasswordEnv, c.Store.PasswordFile = c.readSecret("the store's password", t["password_env"], t["password_file"])
}

func (c *Config) readUpstream(node Node, patterns *matcher) Upstream {
	u := Upstream{Name: node.Key(), Costs: map[string]budget.Cost{}}
	checkName(node, "upstream")
	if !node.IsTable() {
		node.List() // adds the error
		return u
	}
	t := node.Table("mode", "parallel", "unknown_operation", "on_store_error", "costs", "limit", "share", "free_statuses", "refusal", "report", "history", "credential",
		"hosts", "base_url", "secret", "method_override", "tunnel", "final")
	u.Observe = readMode(t["mode"])
	u.OnStoreError = t["on_store_error"].Policy()
	if off, ok := t["history"].Text(); ok && off == "0" {
		c.Store.NoHistory = strings.TrimSpace(c.Store.NoHistory + " " + u.Name)
	} else if ok {
		t["history"].Fail("history of an upstream is \"0\", for none: how long the others' is kept, history at the top of the file says")
	}
	if parallel, ok := t["parallel"].Number(1, maxParallel); ok {
		u.Parallel = int(parallel)
	}
	u.Unknown = readUnknown(t["unknown_operation"])
	u.readReach(t, patterns)
	costs := readCosts(t["costs"], &u, patterns)
	if missing(t["costs"]) && !u.Unknown.Allowed {
		node.Fail("upstream %s has no costs: write [upstream.%s.costs]", u.Name, u.Name)
	}
	tables := t["limit"].List()
	for _, l := range tables {
		u.limitTables = append(u.limitTables, l.Key())
		if limit, ok := c.readLimit(l, u); ok {
			u.Limits = append(u.Limits, limit)
		}
	}
	if missing(t["limit"]) {
		node.Fail("upstream %s has no limit: write [upstream.%s.limit.NAME] with a quota and a window", u.Name, u.Name)
	}
	faults := len(node.doc.errors)
	u.readShares(t["share"])
	sharesRead := len(node.doc.errors) == faults
	feedback := feedbackReader{upstream: &u}
	for _, l := range tables {
		feedback.names = append(feedback.names, l.Key())
	}
	feedback.read(t)
	u.warnNotModified(costs)
	u.checkCosts(costs, t["limit"].IsTable() && len(u.Limits) == len(tables))
	u.checkUnknown(t["unknown_operation"])
	ids := claims{}
	for _, credential := range t["credential"].List() {
		u.Credentials = append(u.Credentials, c.readCredential(credential, u.Name, ids))
	}
	if missing(t["credential"]) {
		node.Fail("upstream %s has no credential: write [upstream.%s.credential.LABEL]; an empty table is enough if no secret is attached", u.Name, u.Name)
	}
	c.warnOpen(t["on_store_error"], u)
	for _, cost := range costs {
		c.warnOpen(cost, u)
	}
	if u.Observe {
		t["mode"].Warn("mode = \"observe\": nothing is refused; calls that would have been are marked")
	}
	if allLimits := len(u.Limits) == len(tables); allLimits {
		u.warnLimits(tables)
		u.checkLeases(costs)
		if sharesRead {
			u.checkBesideGuarantees(costs)
			u.checkSharesCall(t["share"].List())
			if len(node.doc.errors) == faults {
				u.checkCallers(costs)
			}
			u.checkUnknownBeside(t["unknown_operation"])
			u.warnUndivided(tables)
			u.warnApart(tables)
		}
	}
	return u
}

// missing reports whether a table is absent or empty. A value that is not a table is not
// missing: reading it has added an error already.
func missing(node Node) bool {
	return !node.Exists() || node.IsTable() && len(node.children()) == 0
}

// maxParallel is the highest value of parallel.
const maxParallel = 1000

// OpenIsClosed says why on_store_error = "open" is the same as "closed" for an
// upstream, or is empty if it is not.
func (c *Config) OpenIsClosed(u Upstream) string {
	if c.Store.OutageAllowance == 0 {
		return "on_store_error = \"open\" without [store] outage_allowance is the same as \"closed\""
	}
	for _, l := range u.Limits {
		if l.Quota > 0 && l.Window.Kind == limit.Bucket && c.Store.Hosts > 1 {
			return fmt.Sprintf("on_store_error = \"open\" is the same as \"closed\": limit %s is a bucket, and no host knows how full the %d hosts have made it", l.Name, c.Store.Hosts)
		}
		if l.Quota > 0 && l.OutagePart == 0 {
			return fmt.Sprintf("on_store_error = \"open\" is the same as \"closed\": limit %s keeps back no headroom that %d hosts could spend", l.Name, c.Store.Hosts)
		}
	}
	return ""
}

// warnOpen warns if "open" is the same as "closed" for this upstream.
func (c *Config) warnOpen(node Node, u Upstream) {
	opens := node.value == string(budget.Open)
	if table, ok := node.value.(map[string]any); ok {
		opens = table["on_store_error"] == string(budget.Open)
	}
	if why := c.OpenIsClosed(u); opens && why != "" {
		node.Warn("%s", why)
	}
}

func readUnknown(node Node) budget.Unknown {
	if !node.Exists() {
		return budget.Unknown{}
	}
	if node.IsText() {
		if node.value != "refuse" {
			node.Fail("unknown_operation = %s: use \"refuse\" or a number of units", node.show())
		}
		return budget.Unknown{}
	}
	units, ok := node.Units(0)
	return budget.Unknown{Allowed: ok, Units: units}
}

// costKeys are the keys of a price that is a table.
var costKeys = []string{"units", "on_store_error", "match", "once", "actual", "not_modified", "lease_units"}

// readCosts fills in the upstream's prices and returns their nodes.
func readCosts(node Node, u *Upstream, patterns *matcher) []Node {
	list := node.List()
	patterns.upstream = u.Name
	for _, cost := range list {
		checkName(cost, "operation")
		var price budget.Cost
		if cost.IsTable() {
			if cost.FailUnquotedDots(costKeys...) {
				continue
			}
			t := cost.Table(costKeys...)
			if !t["units"].Exists() {
				cost.Fail("operation %q has no units: write units = 1", cost.Key())
			}
			price.Units, _ = t["units"].Units(0)
			price.OnStoreError = t["on_store_error"].Policy()
			price.Match = patterns.read(t["match"], cost.Key())
			price.Once = readOnce(t["once"])
			price.Actual = readSources(t["actual"], actuals)
			if units, ok := t["not_modified"].Units(0); ok {
				price.NotModified = &units
			}
			price.LeaseUnits, _ = t["lease_units"].Units(1)
		} else {
			price.Units, _ = cost.Units(0)
		}
		u.Costs[cost.Key()] = price
	}
	if most := driver.MaxOperations - 1; len(list) > most {
		list[most].Fail("more than %d operations: a ledger distinguishes at most %d; merge some under one name", most, most)
	}
	return list
}

// checkCosts finds prices above a limit, and operations that no limit counts. It looks
// for the latter only if all limits could be read.
func (u *Upstream) checkCosts(costs []Node, allLimits bool) {
	for _, cost := range costs {
		units, covered := u.Costs[cost.Key()].Units, false
		for _, l := range u.Limits {
			if !l.Covers(cost.Key()) {
				continue
			}
			covered = true
			switch above := l.Amount(units) > l.Limit; {
			case above && (u.Observe || l.Observe):
				cost.Warn("operation %q costs %d, more than limit %s allows (%d): the limit only observes; once it enforces, such a call could never be made",
					cost.Key(), units, l.Name, l.Limit)
			case above:
				cost.Fail("operation %q costs %d, more than limit %s allows (%d): it could never be called; raise the limit or lower the cost",
					cost.Key(), units, l.Name, l.Limit)
			}
		}
		if !covered && allLimits {
			cost.Fail("no limit covers operation %q: add it to a limit's operations, or write a limit without operations", cost.Key())
		}
	}
}

// checkUnknown finds a price for unknown operations that is above a limit, or 0.
func (u *Upstream) checkUnknown(node Node) {
	if u.Unknown.Allowed && u.Unknown.Units == 0 {
		node.Warn("unknown_operation = 0: a mistyped operation costs nothing, and neither does a request that no pattern matches; write \"refuse\", and give each operation its cost")
	}
	for _, limit := range u.Limits {
		if u.Unknown.Allowed && limit.CoversAll() && !u.Observe && !limit.Observe && limit.Amount(u.Unknown.Units) > limit.Limit {
			node.Fail("unknown_operation = %d is more than limit %s allows (%d): such a call could never be made; raise the limit, lower the units, or write \"refuse\"",
				u.Unknown.Units, limit.Name, limit.Limit)
		}
	}
}

// readCredential reads a credential. ids are those of the credentials before it.
func (c *Config) readCredential(node Node, upstream string, ids claims) Credential {
	if node.Key() != AnyCredential {
		checkName(node, "credential")
	}
	t := node.Table("secret_env", "secret_file", "id")
	credential := Credential{Label: node.Key()}
	credential.SecretEnv, credential.SecretFile = c.readSecret("the secret of "+upstream+"/"+credential.Label, t["secret_env"], t["secret_file"])
	credential.IDs, _ = t["id"].SomeTexts()
	for _, id := range credential.IDs {
		ids.take(t["id"], id, "credential "+credential.Label, id)
	}
	if t["id"].Exists() && credential.Label == AnyCredential {
		t["id"].Fail("id in credential \"*\": it would not say which label is meant; write [upstream.%s.credential.LABEL] with this id", upstream)
	}
	return credential
}

// readSecret reads where a secret is: in a variable of the environment, or in a file.
func (c *Config) readSecret(what string, inEnv, inFile Node) (env, file string) {
	env = variable(inEnv)
	if name, ok := filled(inFile); ok {
		file = c.Path(name)
	}
	c.noteSecret(what, inEnv, env, inFile, file)
	if inEnv.Exists() && inFile.Exists() {
		inFile.Fail("%s and %s are both given: keep one", inEnv.Key(), inFile.Key())
	}
	return env, file
}

// filled reads a string that must not be empty.
func filled(node Node) (string, bool) {
	s, ok := node.Text()
	if ok && s == "" {
		node.Fail("%s is empty: write a name, or take the key out", node.Key())
		return "", false
	}
	return s, ok
}

// variable reads the name of an environment variable. An invalid one is not shown: it may
// be the secret itself.
func variable(node Node) string {
	name, ok := filled(node)
	if ok && !variableName().MatchString(name) {
		node.Fail("%s is not the name of a variable: write the name, such as \"API_KEY\", of letters, digits and '_'; the secret itself stays in the environment", node.Key())
		return ""
	}
	return name
}

// checkName adds an error if the key is not a valid name; what says what it would name.
func checkName(node Node, what string) bool {
	if driver.ValidName(node.Key()) {
		return true
	}
	node.Fail("%s %q: a name is a letter or digit followed by up to 62 letters, digits, '.', '_' and '-'", what, node.Key())
	return false
}
