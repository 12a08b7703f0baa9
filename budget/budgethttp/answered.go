package budgethttp

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// answer is a response as it is looked at.
type answer struct {
	status  int
	header  http.Header
	cached  bool // it tells nothing of the upstream now
	visible bool // there is a body, and it is not encoded
	done    told // what was acted on already
}

// answered looks at a response whose header has come: acts on what it says,
// finishes the request's charge or has its body do so.
func (a *attempt) answered(resp *http.Response) {
	if isMade(resp) {
		a.refusedBelow()
		return
	}
	upgraded := resp.StatusCode == http.StatusSwitchingProtocols
	hasBody := resp.Body != nil && resp.Body != http.NoBody
	seen := answer{status: resp.StatusCode, header: resp.Header}
	seen.cached = a.isCached(resp)
	seen.visible = hasBody && !upgraded && a.request.Method != http.MethodHead && isPlain(resp.Header)
	a.rememberSession(resp)

	ahead, later := a.reader.looksAtBody(a.operation, seen.status, seen.header)
	later = later && seen.visible
	var text []byte
	if ahead && seen.visible {
		var ended bool
		resp.Body, text, ended = readAhead(resp.Body, a.waitAhead(), a.ctx.Done())
		later = !ended // what came too late, or was too long, is looked at with the rest
	}
	seen.done = a.reader.judge(a.operation, seen.status, seen.header, text)
	cost, final := a.headerCost(seen.status, seen.header)
	waits := seen.visible && (!final || later && a.freeByBody)
	var held held
	switch {
	case seen.done.free:
		a.free(seen, seen.done)
		waits = false
	case waits:
		now := seen.done
		now.reports, held = a.hold(now.reports, later && a.freeByBody)
		a.act(seen, now, false)
	default:
		a.conclude(cost, seen, seen.done)
	}
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
		resp.Body = a.body(resp, seen, held, cost, waits, later)
	}
}

// waitAhead is for how long a body may be read ahead: the lease bounds that, too.
func (a *attempt) waitAhead() time.Duration {
	if a.ends.IsZero() {
		return longestAhead
	}
	return min(longestAhead, time.Until(a.ends))
}

// headerCost is what the request cost as far as status and header tell, and whether
// nothing in the body can tell otherwise. Of several places the first that has a
// value counts.
func (a *attempt) headerCost(status int, header http.Header) (cost int64, final bool) {
	cost, final = statusCost(a.cost, status, a.units()), true
	for i := range a.cost.Actual {
		source := &a.cost.Actual[i]
		if source.JSON != "" {
			final = false
			continue
		}
		if n, ok := readCost(source, header, nil); ok {
			return n, final
		}
	}
	return cost, final
}

// documentCost is what a document of the body says that the request cost, by the
// places that stand before the first of which the header has a value.
func (a *attempt) documentCost(header http.Header, document []byte) (int64, bool) {
	for i := range a.cost.Actual {
		source := &a.cost.Actual[i]
		if source.JSON == "" {
			if _, ok := readCost(source, header, nil); ok {
				break
			}
			continue
		}
		if n, ok := readCost(source, header, document); ok {
			return n, true
		}
	}
	return 0, false
}

// statusCost is what a request cost that was charged, where nothing else tells.
func statusCost(cost budget.Cost, status int, charged int64) int64 {
	if status == http.StatusNotModified && cost.NotModified != nil {
		return *cost.NotModified
	}
	return charged
}

// readCost reads units. Values below 0 and above MaxUnits are none.
func readCost(source *budget.Source, header http.Header, document []byte) (int64, bool) {
	n, ok := readNumber(source, header, document)
	return n, ok && n >= 0 && n <= budget.MaxUnits
}

// isCached reports whether a response comes from a cache, on the way or in the base.
func (a *attempt) isCached(resp *http.Response) bool {
	return isStored(resp.Header) || a.traces.Load() && a.trace.silent()
}

// isPlain reports whether a body is as it is meant: what the caller has to decode is
// not looked at.
func isPlain(header http.Header) bool {
	encoding := header.Get("Content-Encoding")
	return encoding == "" || encoding == "identity"
}

// rememberSession notes the sessions that a response tells as charged.
func (a *attempt) rememberSession(resp *http.Response) {
	if a.cost.Once == nil || resp.StatusCode >= http.StatusBadRequest {
		return
	}
	a.sessions.remember(a.session)
	for _, value := range responseValues(a.cost.Once, resp.Header) {
		a.sessions.remember(newSession(a.budget.Name(), a.cost.Once, value))
	}
}

// act does what a response asks for: what it reports is compared with our count,
// which has the request unless that is released, and what it refuses is locked.
func (a *attempt) act(seen answer, told told, released bool) {
	if seen.cached {
		return
	}
	ctx, cancel := a.within()
	defer cancel()
	x := actor{budget: a.budget, operation: a.operation, charged: a.newest(), released: released}
	if seen.status != http.StatusNotModified && x.charged.ID != "" { // else it is not known what was counted before it
		for _, one := range told.reports {
			if x.covered(one.rule.Limit) {
				a.report(ctx, x, one)
			}
		}
	}
	if told.refusal != nil {
		a.lock(ctx, x, seen.status, told)
	}
}

func (a *attempt) report(ctx context.Context, x actor, one reported) {
	drift, err := x.report(ctx, one)
	switch {
	case err != nil:
		a.logger(x.charged.ID).Warn("what the upstream reports was not compared", "rule", one.rule.Name, "error", err)
	case drift.Added > 0:
		a.options.Observer.Drifted(drift)
	}
}

func (a *attempt) lock(ctx context.Context, x actor, status int, told told) {
	verdict, err := x.lock(ctx, status, told)
	log := a.logger(x.charged.ID).With("rule", verdict.Rule, "means", string(verdict.Means), "status", status)
	switch {
	case err != nil:
		log.Warn("the upstream refused a request, and nothing was locked", "error", err)
	case verdict.Until.IsZero():
		log.Warn("the upstream is overloaded")
	default:
		log.Warn("the upstream refused a request", "limit", verdict.Limit, "until", verdict.Until)
	}
	a.verdict.told.Store(&verdict)
	a.options.Observer.Told(verdict)
}
