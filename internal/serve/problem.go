package serve

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/answer"
)

// quotaExceeded is the problem type that the draft on RateLimit fields defines for a
// request that does not fit.
const (
	quotaExceeded      = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	quotaExceededTitle = "Request cannot be satisfied as assigned quota has been exceeded"
)

// ProblemPage documents the other problem types: each is one of its headings.
const ProblemPage = "https://github.com/quotactl/quotactl/blob/main/docs/http.md#"

// kind is the status and title of a problem.
type kind struct {
	status int
	title  string
}

// kinds maps each reason, of a refused charge or any other problem, to its kind.
var kinds = map[string]kind{
	"exhausted":         {http.StatusTooManyRequests, quotaExceededTitle},
	"locked":            {http.StatusTooManyRequests, "The upstream, or a person, has locked the quota"},
	"recovering":        {http.StatusTooManyRequests, "The store has lost data, and not all hosts have reported"},
	"never_fits":        {http.StatusUnprocessableEntity, "The units can never fit"},
	"unknown_operation": {http.StatusUnprocessableEntity, "The operation has no price or no limit"},
	"too_many_units":    {http.StatusUnprocessableEntity, "The ledger's sum would be too large"},
	"unknown_budget":    {http.StatusNotFound, "Unknown budget"},
	"conflict":          {http.StatusConflict, "The id is already used for something else"},
	"fenced":            {http.StatusConflict, "The pass was declared dead"},
	"expired":           {http.StatusGone, "The reservation has ended"},
	"invalid":           {http.StatusBadRequest, "The request is invalid"},
	"clock":             {http.StatusServiceUnavailable, "The clocks disagree"},
	"damaged":           {http.StatusServiceUnavailable, "The ledger is damaged"},
	"lost":              {http.StatusServiceUnavailable, "The store has lost charges"},
	"store_config":      {http.StatusServiceUnavailable, "The store is not usable as configured"},
	"unavailable":       {http.StatusServiceUnavailable, "The store is out of reach"},
	"interrupted":       {http.StatusServiceUnavailable, "The request was interrupted"},
	"failed":            {http.StatusInternalServerError, "Failed"},

	"busy":         {http.StatusServiceUnavailable, "Too many requests are under way"},
	"no_token":     {http.StatusUnauthorized, "The token is missing or wrong"},
	"read_token":   {http.StatusForbidden, "The read token may look and not spend"},
	"not_local":    {http.StatusForbidden, "The request comes from a web page"},
	"no_path":      {http.StatusNotFound, "Unknown path"},
	"method":       {http.StatusMethodNotAllowed, "The path does not take this method"},
	"media_type":   {http.StatusUnsupportedMediaType, "The body is not plain application/json"},
	"body_size":    {http.StatusRequestEntityTooLarge, "The body is too large"},
	"body_time":    {http.StatusRequestTimeout, "The body did not arrive in time"},
	"header_count": {http.StatusRequestHeaderFieldsTooLarge, "Too many header fields"},

	// Only package door uses these.
	"no_action": {http.StatusForbidden, "The page may not do this"},
	"old_form":  {http.StatusForbidden, "The form is not of this session"},
	"form":      {http.StatusBadRequest, "The form is invalid"},

	// Only the daemon's other handlers and its listener use these.
	"malformed":   {http.StatusBadRequest, "The request is not valid HTTP"},
	"header_size": {http.StatusRequestHeaderFieldsTooLarge, "The header is too large"},
	"not_live":    {http.StatusServiceUnavailable, "The scheduler is not responding"},
	"not_ready":   {http.StatusServiceUnavailable, "The daemon is not ready"},
}

// problem is the body of every answer other than 200 (RFC 9457).
type problem struct {
	reason string
	detail string
	charge *answer.Charge // nil if the problem is not about a charge
	faults []fault
}

// MarshalJSON implements json.Marshaler. The members of the problem come first, then
// those of the charge.
func (p problem) MarshalJSON() ([]byte, error) {
	k := kinds[p.reason]
	b := answer.AppendText([]byte(`{"type":`), problemType(p.reason))
	b = answer.AppendText(append(b, `,"title":`...), k.title)
	b = strconv.AppendInt(append(b, `,"status":`...), int64(k.status), 10)
	b = answer.AppendText(append(b, `,"detail":`...), p.detail)
	if p.reason == "exhausted" && p.charge != nil && p.charge.Limit != "" {
		b = append(answer.AppendText(append(b, `,"violated-policies":[`...), p.charge.Limit), ']')
	}
	if len(p.faults) > 0 {
		faults, err := json.Marshal(p.faults)
		if err != nil {
			return nil, err
		}
		b = append(append(b, `,"errors":`...), faults...)
	}
	if p.charge != nil {
		return append(p.charge.AppendMembers(append(b, ',')), '}'), nil
	}
	return append(answer.AppendText(append(b, `,"reason":`...), p.reason), '}'), nil
}

func problemType(reason string) string {
	if reason == "exhausted" {
		return quotaExceeded
	}
	return ProblemPage + reason
}

// ProblemMedia is the media type of a problem.
const ProblemMedia = "application/problem+json"

var (
	problemMedia = []string{ProblemMedia}
	bearer       = []string{`Bearer realm="quotactl"`}
)

// maxProblem bounds a problem's detail in bytes: errors quote the request and the
// configuration's names.
const maxProblem = 2000

// Refuse answers with a problem, for the daemon's other handlers. reason is one of the
// words in docs/http.md.
func Refuse(w http.ResponseWriter, reason, detail string) {
	refuse(w, problem{reason: reason, detail: detail})
}

// Problem returns the status and the body that Refuse would write, for use without an
// http.ResponseWriter. The media type is ProblemMedia.
func Problem(reason, detail string) (status int, body []byte) {
	p := problem{reason: reason, detail: cut(detail, maxProblem)}
	body, _ = p.MarshalJSON() // only a list of faults could fail, and it has none
	return kinds[reason].status, append(body, '\n')
}

// WrongMethod answers 405; methods lists those that the path takes.
func WrongMethod(w http.ResponseWriter, methods string) {
	w.Header()["Allow"] = []string{methods}
	Refuse(w, "method", "use "+methods)
}

// MethodsToRead are the methods of read-only paths.
const MethodsToRead = http.MethodGet + ", " + http.MethodHead

// refuse answers with a problem.
func refuse(w http.ResponseWriter, p problem) {
	p.detail = cut(p.detail, maxProblem)
	body, err := json.Marshal(p)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	header := w.Header()
	header["Content-Type"] = problemMedia
	if p.reason == "no_token" {
		header["Www-Authenticate"] = bearer
	}
	switch status := kinds[p.reason].status; {
	case p.charge != nil && !p.charge.RetryAt.IsZero():
		header["Retry-After"] = []string{strconv.FormatInt(wholeSeconds(p.charge.RetryAfter), 10)}
	case status == http.StatusServiceUnavailable:
		header["Retry-After"] = []string{"1"}
	}
	w.WriteHeader(kinds[p.reason].status)
	_, _ = w.Write(append(body, '\n')) // an error means that the client has left
}

// wholeSeconds rounds a wait up to whole seconds, at least 1.
func wholeSeconds(d time.Duration) int64 {
	return max(1, int64((d+time.Second-1)/time.Second))
}

// failed answers with a budget's error.
func failed(w http.ResponseWriter, err error) {
	refuse(w, problem{reason: answer.Reason(late(err)), detail: err.Error()})
}

// late turns a missed deadline into ErrUnavailable: the store was too slow.
func late(err error) error {
	if errors.Is(err, context.DeadlineExceeded) && answer.Reason(err) == "failed" {
		return budget.ErrUnavailable
	}
	return err
}
