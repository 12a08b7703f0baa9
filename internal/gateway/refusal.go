package gateway

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
)

// storeRetry is when a program may retry after the store did not decide.
const storeRetry = 5 * time.Second

// stopPause is how long a program may show the refusal that ends it.
const stopPause = time.Second

// shortWait is the longest Retry-After in an answer.
const shortWait = time.Minute

// refusal is an answer that the gateway gives itself.
type refusal struct {
	status int
	text   string        // after "quotactl: "
	kind   string        // the value of the header X-Quotactl
	code   string        // of the error, for programs
	after  time.Duration // when to retry; 0: never
	limit  string
	at     time.Time
	ends   bool         // the run
	final  config.Final // the form of the upstream's refusals
}

// The values of the header X-Quotactl.
const (
	isRefused = "refused"
	isError   = "error"
)

// refusalOf is the answer to a request that failed with an error.
func (h *handler) refusalOf(c *call, err error) *refusal {
	var refused *budget.RefusedError
	var uncharged *notCharged
	var untrusted *tls.CertificateVerificationError
	switch {
	case errors.Is(err, budget.ErrUnknownOperation):
		return h.misconfigured(fmt.Sprintf("%s is no operation of upstream %s: add its pattern to the match of one in costs.toml, or set unknown_operation", c.shown(), c.upstream.Name))
	case (errors.Is(err, budget.ErrExhausted) || errors.Is(err, budget.ErrNeverFits)) && errors.As(err, &refused):
		return h.exhausted(c, refused)
	case errors.Is(err, budget.ErrUnavailable):
		h.tally.count(func(all *Tally) { all.StoreAway++; all.of(c.budget) })
		return &refusal{status: http.StatusServiceUnavailable, text: err.Error(), kind: isError, code: "quotactl_unavailable", after: storeRetry}
	case errors.As(err, &refused), errors.As(err, &uncharged):
		return h.broken(c.host, http.StatusServiceUnavailable, "the call could not be charged: "+err.Error())
	case errors.Is(err, errWantsCertificate):
		return h.broken(c.host, http.StatusBadGateway, fmt.Sprintf("%s asks for a client certificate, which only the program has; --tunnel %s lets it pass unmetered. Nothing was charged", c.host, c.host))
	case errors.As(err, &untrusted):
		return h.broken(c.host, http.StatusBadGateway, fmt.Sprintf("the certificate of %s does not verify: %s; if a company's proxy makes it, name that CA in SSL_CERT_FILE before meter starts; --tunnel %s lets the host pass unmetered. Nothing was charged", c.host, err, c.host))
	}
	return h.broken(c.host, http.StatusBadGateway, fmt.Sprintf("%s did not answer: %s", c.host, h.keptOf(c).hide(err.Error())))
}

// broken is the answer to a call that failed on its way.
func (h *handler) broken(host string, status int, text string) *refusal {
	h.tally.failed(host, text)
	return &refusal{status: status, text: text, kind: isError, code: "quotactl_error"}
}

// misconfigured is the answer to a request that the configuration does not cover.
func (h *handler) misconfigured(text string) *refusal {
	h.tally.count(func(all *Tally) {
		if !slices.Contains(all.Misconfigured, text) && len(all.Misconfigured) < 10 {
			all.Misconfigured = append(all.Misconfigured, text)
		}
	})
	return &refusal{status: http.StatusForbidden, text: text + ". Nothing was charged", kind: isRefused, code: "not_configured"}
}

// exhausted is the answer to a call that does not fit: when to retry if that is soon, else one
// that says that retrying does not help.
func (h *handler) exhausted(c *call, refused *budget.RefusedError) *refusal {
	r := &refusal{
		status: http.StatusTooManyRequests, kind: isRefused, after: refused.RetryAfter, at: refused.RetryAt,
		limit: refused.Limit, final: c.upstream.Final, code: codeExceeded,
	}
	state, until := "spent", "further notice"
	if errors.Is(refused, budget.ErrLocked) {
		state = "locked"
	}
	if !refused.RetryAt.IsZero() {
		until = forPeople(h.options.Screen).Time(refused.RetryAt)
	}
	r.text = fmt.Sprintf("%s is %s until %s", c.budget, state, until)
	if errors.Is(refused, budget.ErrNeverFits) {
		r.text = refused.Error()
	} else if refused.Limit != "" {
		r.text += fmt.Sprintf("; limit %s has %d left", refused.Limit, refused.Remaining)
	}
	if soonest := h.meters.soonest(c.budget, refused); r.after > shortWait && soonest <= shortWait {
		r.after, r.at = max(soonest, time.Second), time.Time{}
		r.text = fmt.Sprintf("%s has nothing left in limit %s while calls are open; it may have when one ends", c.budget, refused.Limit)
	}
	if r.after > 0 && r.after <= shortWait {
		h.tally.count(func(all *Tally) { all.of(c.budget).Later++ })
		return r
	}
	r.after, r.status, r.ends = 0, http.StatusForbidden, true
	h.tally.count(func(all *Tally) {
		spent := all.of(c.budget)
		spent.Final++
		spent.First = cmp.Or(spent.First, refused)
		all.Exhausted = cmp.Or(all.Exhausted, refused)
	})
	return r
}

// refuseWith writes a refusal in the form that the program's client understands.
func (h *handler) refuseWith(w http.ResponseWriter, req *http.Request, r *refusal) {
	if r.ends { // once the answer is written
		context.AfterFunc(req.Context(), func() { time.AfterFunc(stopPause, h.tally.end) })
	}
	header := w.Header()
	header.Set("X-Quotactl", r.kind)
	header.Set("Cache-Control", "no-store")
	text := "quotactl: " + r.text
	if strings.HasPrefix(req.Header.Get("Content-Type"), "application/grpc") {
		code := "8" // RESOURCE_EXHAUSTED
		switch {
		case r.kind == isError && r.status < http.StatusInternalServerError:
			code = "13" // INTERNAL, which is not retried
		case r.kind == isError:
			code = "14" // UNAVAILABLE
		}
		header.Set("Content-Type", "application/grpc")
		header.Set("Grpc-Status", code)
		header.Set("Grpc-Message", url.PathEscape(text))
		w.WriteHeader(http.StatusOK)
		return
	}
	switch {
	case r.after > 0:
		seconds := strconv.FormatInt(int64((r.after+time.Second-1)/time.Second), 10)
		header.Set("Retry-After", seconds)
		header.Set("Retry-After-Ms", strconv.FormatInt(int64((r.after+time.Millisecond-1)/time.Millisecond), 10))
		if r.limit != "" {
			header.Set("Ratelimit", fmt.Sprintf("%q;r=0;t=%s", r.limit, seconds))
		}
	case r.kind == isRefused:
		header.Set("X-Should-Retry", "false")
	}
	status, body := r.body(text)
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if req.Method != http.MethodHead {
		_, _ = w.Write(body) // a program that is gone needs none
	}
	if c := callOf(req.Context()); c != nil && c.flows != nil && req.Header.Get("Expect") == "" {
		// A program that sends all before it reads would lose the answer with the connection.
		c.admit()
		_ = http.NewResponseController(w).Flush() // as above
		_, _ = io.Copy(io.Discard, c.flows)
	}
}

// codeExceeded is the code of refusals that more units would avoid.
const codeExceeded = "quota_exceeded"

// quotaExceeded is the problem type of draft-ietf-httpapi-ratelimit-headers.
const quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// body is the status and the body of a refusal that the clients of most APIs can show: it has the
// members of RFC 9457, and those in which GitHub, OpenAI, Stripe and Google say why.
func (r *refusal) body(text string) (status int, body []byte) {
	status = r.status
	if r.after == 0 && r.final.Status != 0 {
		status = r.final.Status
	}
	if r.final.Body != "" && r.kind == isRefused {
		return status, r.final.Fill(text, status)
	}
	type object map[string]any // JSON has them sorted: detail comes first, and some clients show the beginning alone
	title, reason := "quotactl refused the request; it was not sent", "backendError"
	if r.kind == isError {
		title = "quotactl could not pass the request on"
	}
	problem := object{"detail": text, "message": text, "status": status, "title": title}
	if r.code == codeExceeded {
		problem["type"], reason = quotaExceeded, "quotaExceeded"
	}
	if !r.at.IsZero() {
		problem["retry_at"] = r.at.UTC()
	}
	causes := []object{{"reason": reason, "domain": "quotactl", "message": text}}
	problem["error"] = object{"code": r.code, "type": r.code, "message": text, "errors": causes}
	body, _ = json.Marshal(problem) // texts and numbers always can be
	return status, body
}
