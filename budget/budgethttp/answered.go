package budgethttp

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/feedback"
)

// answer is how a response is to be read.
type answer struct {
	status  int
	header  http.Header
	cached  bool     // it says nothing about the upstream's current state
	visible bool     // there is a body that can be read
	codings []string // the codings to remove before reading it
	done    facts    // what was acted on already
}

// answered handles a response whose header has arrived: it acts on what the header says,
// and finishes the request's charge, or leaves that to the body.
func (a *attempt) answered(resp *http.Response) {
	if isMade(resp) {
		a.refusedBelow()
		return
	}
	upgraded := resp.StatusCode == http.StatusSwitchingProtocols
	hasBody := resp.Body != nil && resp.Body != http.NoBody
	seen := answer{status: resp.StatusCode, header: resp.Header}
	seen.cached = a.options.Foreign || a.isCached(resp)
	a.rememberSession(resp)

	said := newCostSaid(a.cost.Actual, seen.header)
	ahead, later := a.reader.looksAtBody(a.operation, seen.status, seen.header)
	if seen.visible = hasBody && !upgraded && a.request.Method != http.MethodHead; seen.visible {
		var err error
		if seen.codings, err = codingsOf(seen.header); err != nil {
			seen.visible = false
			if ahead || later || said.inBody() {
				a.unread(Unread{What: UnreadEncoding, Why: err.Error()})
			}
		}
	}
	later = later && seen.visible
	var text []byte
	if ahead && seen.visible {
		var ended error
		resp.Body, text, ended = readAhead(resp.Body, a.waitAhead(), a.ctx.Done())
		later = ended == nil // what arrived too late, or was too long, is read with the rest
		var damage error
		if text, damage = unpackStart(seen.codings, text); damage != nil && ended != nil {
			a.unread(Unread{What: UnreadBody, Why: damaged(damage)})
		} else if ended != nil && !errors.Is(ended, io.EOF) && a.request.Context().Err() == nil {
			a.unread(Unread{What: UnreadBody, Why: whyBroken})
		}
	}
	start := newContent(seen.header, text)
	start.partial = later && len(text) < maxBody
	seen.done = a.reader.judge(a.operation, seen.status, start)
	estimate := statusCost(a.cost, seen.status, a.units())
	cost := said.settled(estimate)
	waits := seen.visible && (said.inBody() || later && a.freeByBody)
	heard := a.actor(seen).hearing(a.reader, seen.header, said)
	heard.before = seen.done
	var held held
	if waits = waits && !seen.done.free; waits {
		now := seen.done
		now.reports, held = a.hold(now.reports, later && a.freeByBody)
		_ = a.actor(seen).act(now, false) // an attempt logs its errors
	} else {
		_ = a.actor(seen).finish(cost, seen.done)
	}
	heard.asks, heard.judges = !waits, later // what the header says is known now
	a.unread(slices.Concat(heard.misreadCost(""), heard.misreadRules(""))...)
	heard.asks = waits
	conn, writable := resp.Body.(io.ReadWriteCloser)
	switch {
	case upgraded && writable: // the connection is the caller's, and its context with it
		resp.Body = a.handOver(conn)
	case !hasBody && (resp.ProtoMajor == 1 || a.request.Body == nil || a.request.Body == http.NoBody):
		a.cancel(nil)
	default: // also of none, while the request's body may still be on its way
		if resp.Body == nil {
			resp.Body = http.NoBody
		}
		resp.Body = a.body(resp, seen, heard, held, estimate, waits, later)
	}
}

// waitAhead is how long a body may be read ahead; the lease bounds that too.
func (a *attempt) waitAhead() time.Duration {
	if a.ends.IsZero() {
		return longestAhead
	}
	return min(longestAhead, time.Until(a.ends))
}

// isCached reports whether a response comes from a cache, on the way or in the base.
func (a *attempt) isCached(resp *http.Response) bool {
	return isStored(resp.Header) || a.traces.Load() && a.trace.silent()
}

// rememberSession notes the sessions that a response names as charged.
func (a *attempt) rememberSession(resp *http.Response) {
	if a.cost.Once == nil || resp.StatusCode >= http.StatusBadRequest {
		return
	}
	a.remember(a.session)
	for _, value := range responseValues(a.cost.Once, resp.Header) {
		a.remember(newSession(a.budget.Name(), a.cost.Once, value))
	}
}

// actor acts on a response, with the attempt's last charge.
func (a *attempt) actor(seen answer) actor {
	return actor{budget: a.budget, operation: a.operation, charged: a.newest(), status: seen.status, cached: seen.cached, by: a}
}

// keep implements actsFor.
func (a *attempt) keep(units int64, quietly bool) error {
	if !quietly || !a.settleSoon(units) {
		a.settle(units)
	}
	return nil
}

// giveBack implements actsFor.
func (a *attempt) giveBack() (bool, error) { return a.release(), nil }

// compared implements actsFor.
func (a *attempt) compared(rule *feedback.Report, drift budget.Drift, err error) error {
	switch {
	case err != nil:
		a.logger(a.newest().ID).Warn("what the upstream reports was not compared", "rule", rule.Name, "error", err)
	case drift.Added > 0:
		a.options.Observer.Drifted(drift)
	}
	return nil
}

// locked implements actsFor.
func (a *attempt) locked(status int, verdict Verdict, err error) error {
	log := a.logger(a.newest().ID).With("rule", verdict.Rule, "means", string(verdict.Means), "status", status)
	switch {
	case err != nil:
		log.Warn("the upstream refused a request, and nothing was locked", "error", err)
	case verdict.Cached:
		log.Warn("a response from a cache, or to another key, is a refusal, and nothing was locked")
	case verdict.Means == feedback.Overloaded:
		log.Warn("the upstream is overloaded")
	case verdict.Until.IsZero():
		log.Warn("the upstream refused a request; nothing is locked, because its reset has passed or the limit does not count the request")
	case !verdict.Asked.IsZero():
		log.Warn("the upstream refused a request for longer than its rule locks; give the rule a longest",
			"limit", verdict.Limit, "until", verdict.Until, "asked_until", verdict.Asked)
	default:
		log.Warn("the upstream refused a request", "limit", verdict.Limit, "until", verdict.Until)
	}
	a.verdict.told.Store(&verdict)
	a.options.Observer.Refused(verdict)
	return nil
}
