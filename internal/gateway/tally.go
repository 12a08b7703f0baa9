package gateway

import (
	"crypto/tls"
	"net"
	"net/http"
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
	// Tunnels counts connections by host that were not opened, and Chosen says that the user wanted one
	// of these to pass.
	Tunnels map[string]int
	Chosen  bool
	// Broken counts handshakes by host in which the program refused the certificate, as one with a
	// list of CAs of its own does. Some just close, perhaps after the handshake: if a host got no
	// request, all its connections count.
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
	Final        int64                // refused, for longer than a program waits
	First        *budget.RefusedError // the first of those
	Later        int64                // refused for less than a minute
	GaveUp       int64                // by the program, before they were sent
	Denied       int64                // refused by the upstream
}

// Saw reports whether a call to a budget was seen, or that the user wanted some to pass unseen.
func (t *Tally) Saw(budget string) bool {
	return t.Budgets[budget] != nil || t.Own > 0 || t.Chosen
}

// tally counts; it is safe for concurrent use.
type tally struct {
	mu      sync.Mutex // guards the rest
	t       Tally
	without map[string]int // connections without a request by host; -1: another one had some
	spent   chan struct{}  // closed after the first final refusal
	end     func()         // closes it
}

func newTally() *tally {
	spent := make(chan struct{})
	return &tally{spent: spent, without: map[string]int{}, end: sync.OnceFunc(func() { close(spent) }), t: Tally{
		Budgets: map[string]*Spent{}, Passed: map[string]int{}, Tunnels: map[string]int{}, Broken: map[string]int{},
		Failed: map[string]int{}, Why: map[string]string{},
	}}
}

func (t *tally) count(change func(*Tally)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.t)
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

func (t *tally) tunnel(host string, chosen bool) {
	t.count(func(all *Tally) {
		countNamed(all.Tunnels, host)
		all.Chosen = all.Chosen || chosen
	})
}

// failed counts a call that got an error of the gateway.
func (t *tally) failed(host, why string) {
	t.count(func(all *Tally) {
		if countNamed(all.Failed, host); all.Failed[host] == 1 {
			all.Why[host] = why
		}
	})
}

// connection notes a connection to a host, and whether it has had a request.
func (t *tally) connection(host string, used bool) {
	t.count(func(*Tally) {
		n, known := t.without[host]
		switch {
		case !known && len(t.without) >= mostNamed: // nothing is said of it
		case used:
			t.without[host] = -1
		case n >= 0:
			t.without[host]++
		}
	})
}

// state is for http.Server's ConnState. With HTTP/2 a connection is used once its program has begun
// to speak it.
func (t *tally) state(conn net.Conn, state http.ConnState) {
	if opened, ok := conn.(*tls.Conn); ok && state == http.StateActive {
		t.connection(opened.NetConn().(*peeked).target.host, true)
	}
}

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
	isLetter := func(c rune) bool { return strings.ContainsRune("abcdefghijklmnopqrstuvwxyz-_.", c) }
	digits := strings.Join(strings.FieldsFunc(part, isLetter), "")
	if len(digits) > 2 || strings.Trim(digits, "0123456789") != "" || len(part) > 24 {
		return "…"
	}
	return part
}

// observer counts the charges of one budget.
type observer struct {
	budgethttp.NoObserver
	tally *tally
	name  string
}

// Refused implements budgethttp.Observer.
func (o *observer) Refused(budgethttp.Verdict) {
	o.tally.count(func(all *Tally) { all.of(o.name).Denied++ })
}

// Settled implements budgethttp.Observer.
func (o *observer) Settled(_ budget.Receipt, units int64) {
	o.tally.count(func(all *Tally) { all.of(o.name).Units += units })
}
