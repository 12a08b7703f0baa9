package gateway

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
)

// Tally is what became of the calls of a command.
type Tally struct {
	Budgets map[string]*Spent
	// Passed counts calls by host and the first part of their path: the host is opened, and no
	// upstream owns the path.
	Passed map[string]int
	// Tunnels counts connections by host that were not opened.
	Tunnels map[string]int
	// Broken counts handshakes by host that the program broke off: it has a list of CAs of its
	// own.
	Broken map[string]int
	// Own counts calls that the program charged itself.
	Own int64
	// Exhausted is the first final refusal; nil: there is none.
	Exhausted *budget.RefusedError
	// Misconfigured are the reasons, each once, why calls were refused that the configuration
	// does not cover.
	Misconfigured []string
	// Failed are calls by host that got an error of the gateway, and Why is the first one's.
	Failed map[string]int
	Why    map[string]string
	// StoreAway counts calls that were refused because the store did not decide.
	StoreAway int
}

// Spent is what the calls of one budget took.
type Spent struct {
	Calls, Units int64
	Final        int64 // refused, for longer than a program waits
}

// tally counts; it is safe for concurrent use.
type tally struct {
	mu    sync.Mutex // guards the rest
	t     Tally
	spent chan struct{} // closed after the first final refusal
	end   func()        // closes it
}

func newTally() *tally {
	spent := make(chan struct{})
	return &tally{spent: spent, end: sync.OnceFunc(func() { close(spent) }), t: Tally{
		Budgets: map[string]*Spent{}, Passed: map[string]int{}, Tunnels: map[string]int{}, Broken: map[string]int{},
		Failed: map[string]int{}, Why: map[string]string{},
	}}
}

func (t *tally) count(change func(*Tally)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.t)
}

// read is a copy of all counts.
func (t *tally) read() Tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.t
	all.Budgets = map[string]*Spent{}
	for name, spent := range t.t.Budgets {
		one := *spent
		all.Budgets[name] = &one
	}
	all.Passed, all.Tunnels, all.Broken = maps.Clone(t.t.Passed), maps.Clone(t.t.Tunnels), maps.Clone(t.t.Broken)
	all.Failed, all.Why = maps.Clone(t.t.Failed), maps.Clone(t.t.Why)
	all.Misconfigured = slices.Clone(t.t.Misconfigured)
	return all
}

func (t *Tally) of(budget string) *Spent {
	if t.Budgets[budget] == nil {
		t.Budgets[budget] = &Spent{}
	}
	return t.Budgets[budget]
}

// passed counts a call that nobody owns.
func (t *tally) passed(host, path string) {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	t.count(func(all *Tally) { countNamed(all.Passed, host+"/"+wordOr(first)) })
}

func (t *tally) tunnel(host string) { t.count(func(all *Tally) { countNamed(all.Tunnels, host) }) }

func (t *tally) broken(host string) { t.count(func(all *Tally) { countNamed(all.Broken, host) }) }

// mostNamed bounds how many hosts or paths are counted apart.
const mostNamed = 1000

func countNamed(counts map[string]int, name string) {
	if _, known := counts[name]; !known && len(counts) >= mostNamed {
		name = "others"
	}
	counts[name]++
}

// wordOr is a part of a path as a message may show it: "…" if it is no plain word, and so
// perhaps an id or a secret.
func wordOr(part string) string {
	digits := 0
	for _, c := range part {
		switch {
		case c >= '0' && c <= '9':
			digits++
		case (c < 'a' || c > 'z') && !strings.ContainsRune("-_.", c):
			return "…"
		}
	}
	if digits > 2 || len(part) > 24 {
		return "…"
	}
	return part
}

// sent counts a call that has left.
func (t *tally) sent(budget string) { t.count(func(all *Tally) { all.of(budget).Calls++ }) }

func (t *tally) failed(host, why string) {
	t.count(func(all *Tally) {
		if countNamed(all.Failed, host); all.Failed[host] == 1 {
			all.Why[host] = why
		}
	})
}

func (t *tally) storeAway(budget string) {
	t.count(func(all *Tally) { all.StoreAway++; all.of(budget) })
}

func (t *tally) misconfigured(why string) {
	t.count(func(all *Tally) {
		if !slices.Contains(all.Misconfigured, why) && len(all.Misconfigured) < 10 {
			all.Misconfigured = append(all.Misconfigured, why)
		}
	})
}

// refusedForGood counts a final refusal.
func (t *tally) refusedForGood(name string, refused *budget.RefusedError) {
	t.count(func(all *Tally) {
		all.of(name).Final++
		if all.Exhausted == nil {
			all.Exhausted = refused
		}
	})
}

// observer counts the charges of one budget.
func (t *tally) observer(name string) budgethttp.Observer { return &observer{t, name} }

type observer struct {
	tally *tally
	name  string
}

// Charged implements budgethttp.Observer.
func (*observer) Charged(budget.Receipt) {}

// Settled implements budgethttp.Observer.
func (o *observer) Settled(_ budget.Receipt, units int64) {
	o.tally.count(func(all *Tally) { all.of(o.name).Units += units })
}

// Refused implements budgethttp.Observer.
func (*observer) Refused(budgethttp.Verdict) {}

// Drifted implements budgethttp.Observer.
func (*observer) Drifted(budget.Drift) {}

// Unread implements budgethttp.Observer.
func (*observer) Unread(budgethttp.Unread) {}
