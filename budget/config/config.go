package config

import (
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/suggest"
)

// Config is a costs.toml: the store, the upstreams with their costs, limits
// and credentials, the alerts, and the job tables, which package jobs reads.
type Config struct {
	// File is the path it was read from; relative paths in it start at its
	// folder.
	File string
	// StateDir is state_dir made absolute or relative to the working directory; empty if
	// the file names none.
	StateDir  string
	Store     Store
	Upstreams []Upstream
	// Jobs are the [job.NAME] tables in the order of the file, unread.
	Jobs []Node
	// Alerts are in the order of the file.
	Alerts []Alert

	jobSays   map[string]map[string]budget.JobSays // by upstream and job
	jobFaults Errors                               // of the keys in it

	// unread are the names of the jobs whose tables [ParseFor] has left out.
	unread []string

	doc      *document
	storeURL Node // [store] url, if it names a store
	secrets  []secretPlace
}

// Store is the [store] table.
type Store struct {
	// URL opens the store; see package open. The path of an SQLite file is absolute or
	// relative to the working directory. Default: DefaultStoreURL.
	URL    string
	Prefix string // begins the keys of a Redis store
	// Timeout bounds one decision; 0: the store's own default.
	Timeout time.Duration
	// Hosts is how many hosts share the store, 1 or more.
	Hosts int64
	// OutageAllowance is what a host may spend per budget while the store is
	// out of reach, in units.
	OutageAllowance int64
	// RefusalMemory is how long a process gives a refusal again without asking the store;
	// 0: never. Default: DefaultRefusalMemory.
	RefusalMemory time.Duration
	PasswordEnv   string
	PasswordFile  string
	// History is the file's history: how long the spend by the hour is kept; 0: the
	// store's own default.
	History time.Duration
	// NoHistory names the upstreams whose spend by the hour is not kept (history = "0"), with a
	// space between.
	NoHistory string
}

// DefaultStoreURL is the store of a configuration that names none.
const DefaultStoreURL = "sqlite:quotactl.db"

// DefaultRefusalMemory is how long a process remembers a refusal, unless a configuration
// says otherwise: ten questions a second, however often it calls.
const DefaultRefusalMemory = 100 * time.Millisecond

// Upstream is an [upstream.NAME] table.
type Upstream struct {
	Name         string
	Unknown      budget.Unknown
	OnStoreError budget.Policy
	Costs        map[string]budget.Cost
	Limits       []limit.Limit // in the order of the file
	Credentials  []Credential
	// Parallel is how many runs of each of its budgets may run at once, over all jobs and
	// daemons; 0: no bound.
	Parallel int
	// Observe: mode = "observe".
	Observe  bool
	Feedback feedback.Rules
	// Hosts belong to this upstream with all their paths, but for what another's BaseURLs or
	// patterns name.
	Hosts []Host
	// BaseURLs are http or https, with a host, perhaps a port and a path without a slash at
	// its end; everything below belongs to this upstream.
	BaseURLs []*url.URL
	Secret   Secret
	// MethodOverride: X-HTTP-Method-Override of a POST names its method.
	MethodOverride bool
	// Tunnel: connections to this upstream are never opened.
	Tunnel bool
	Final  Final

	shareJobs []shareJob
	// limitTables are the names of all limits, also of those that could not be read.
	limitTables []string
}

// NamesHost reports whether the upstream says which hosts are its own, in any way.
func (u *Upstream) NamesHost() bool {
	for _, cost := range u.Costs {
		if len(cost.Match) > 0 {
			return true
		}
	}
	return len(u.Hosts)+len(u.BaseURLs) > 0
}

// Credential is an [upstream.NAME.credential.LABEL] table: where the secret
// is found, never the secret.
type Credential struct {
	Label      string
	SecretEnv  string
	SecretFile string
	// IDs are what a request carries that identifies the credential and is not secret.
	IDs []string
}

// Parse reads a file and finds every error in it; [Config.Err] returns them. Parse itself
// returns an error only if the file cannot be read or is not TOML ([Errors]).
func Parse(path string) (*Config, error) {
	root, err := parseDocument(path)
	if err != nil {
		return nil, err
	}
	return readConfig(path, root), nil
}

// ParseText is Parse for a text that is in no file; the name is for messages.
func ParseText(name, text string) (*Config, error) {
	root, err := parseText(name, text)
	if err != nil {
		return nil, err
	}
	return readConfig(name, root), nil
}

// Load reads a file that must have no errors. From its job tables it reads only the keys
// of [budget.JobSays]. The error is [Errors], with all of them.
func Load(path string) (*Config, error) {
	c, err := Parse(path)
	if err != nil {
		return nil, err
	}
	if faults := slices.Concat(c.doc.errors, c.jobFaults); len(faults) > 0 {
		return c, sorted(faults)
	}
	return c, nil
}

// Err is all errors found so far, as [Errors] in the order of their lines, or nil.
func (c *Config) Err() error {
	if len(c.doc.errors) == 0 {
		return nil
	}
	return sorted(c.doc.errors)
}

// StoreFault adds a store's objection to its URL to the errors, at the line of [store]
// url. It does nothing if the file has no such line, or if the line has an error already.
func (c *Config) StoreFault(err error) {
	if c.storeURL.Exists() {
		c.storeURL.Fail("%s", strings.TrimPrefix(err.Error(), budget.ErrStoreConfig.Error()+": "))
	}
}

// Warnings lists what is legal but probably a mistake, in the order of the lines.
func (c *Config) Warnings() Errors {
	var list Errors
	for _, w := range c.doc.warnings[:min(maxFaults, len(c.doc.warnings))] {
		list = append(list, Error{c.doc.file, w.at.Line(), w.message})
	}
	if len(c.doc.warnings) > maxFaults {
		list = append(list, Error{c.doc.file, c.doc.lines, "there are more warnings than the first " + strconv.Itoa(maxFaults)})
	}
	return sorted(list)
}

func sorted(list Errors) Errors {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b Error) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return strings.Compare(a.Message, b.Message)
	})
	return slices.Compact(list)
}

// Path makes a path of the file absolute or relative to the working directory.
func (c *Config) Path(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(c.File), path)
}

// Budgets are the names of all budgets, in the order of the file, except those that a
// credential table "*" admits.
func (c *Config) Budgets() []string {
	var names []string
	for _, u := range c.Upstreams {
		for _, credential := range u.Credentials {
			if credential.Label != AnyCredential {
				names = append(names, u.Name+"/"+credential.Label)
			}
		}
	}
	return names
}

// AnyCredential is the label of a credential table that admits any label.
const AnyCredential = "*"

// Find returns the upstream and credential of a budget, including one that a credential
// table "*" admits. The error is ErrUnknownBudget and lists the budgets that exist.
func (c *Config) Find(name string) (Upstream, Credential, error) {
	var names []string
	for _, u := range c.Upstreams {
		label, ours := strings.CutPrefix(name, u.Name+"/")
		for _, credential := range u.Credentials {
			names = append(names, u.Name+"/"+credential.Label)
			if ours && credential.Label == label && label != AnyCredential {
				return u, credential, nil
			}
		}
	}
	for _, u := range c.Upstreams {
		label, ours := strings.CutPrefix(name, u.Name+"/")
		for _, credential := range u.Credentials {
			if ours && credential.Label == AnyCredential && driver.ValidName(label) {
				credential.Label = label
				return u, credential, nil
			}
		}
	}
	return Upstream{}, Credential{}, fmt.Errorf("%w %q: %s has %s%s", budget.ErrUnknownBudget, name, c.File, strings.Join(names, ", "), suggest.DidYouMean(name, names))
}

// Pricing are those of the budgets named at which an operation has a price. If there is none, the
// error is budget.ErrUnknownOperation.
func (c *Config) Pricing(names []string, operation string) (list []string, err error) {
	var known []string
	for _, name := range names {
		u, _, err := c.Find(name)
		if err != nil {
			return nil, err
		}
		if _, priced := u.Costs[operation]; priced || u.Unknown.Allowed {
			list = append(list, name)
		}
		known = slices.AppendSeq(known, maps.Keys(u.Costs))
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w %q: it has no price at %s%s", budget.ErrUnknownOperation, operation, strings.Join(names, ", "), suggest.DidYouMean(operation, known))
	}
	return list, nil
}

// Spec is what [budget.New] needs for a budget of this configuration.
func (c *Config) Spec(name string) (budget.Spec, error) {
	u, _, err := c.Find(name)
	if err != nil {
		return budget.Spec{}, err
	}
	limits := slices.Clone(u.Limits)
	for i := range limits {
		limits[i].Observe = limits[i].Observe || u.Observe
	}
	return budget.Spec{
		Name: name, Limits: limits, Costs: u.Costs, Unknown: u.Unknown,
		OnStoreError: u.OnStoreError, Timeout: c.Store.Timeout,
		Observe: u.Observe, Feedback: u.Feedback, Jobs: c.jobSays[u.Name],
	}, nil
}
