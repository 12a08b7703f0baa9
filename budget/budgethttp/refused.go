package budgethttp

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// RefusedHeader is in the responses that the transport makes itself, and in no
// other: the limit that binds, or the budget where that is locked.
const RefusedHeader = "Quotactl-Refused"

// problem is the body of such a response: RFC 9457, and the members that API clients
// expect in the body of a 429.
type problem struct {
	Type       string `json:"type"`
	Title      string `json:"title"`
	Status     int    `json:"status"`
	Detail     string `json:"detail"`
	Budget     string `json:"budget"`
	Operation  string `json:"operation"`
	Limit      string `json:"limit,omitempty"`
	RetryAfter int64  `json:"retry_after_seconds"`

	Message string       `json:"message"`     // GitHub's clients, Discord's
	Seconds int64        `json:"retry_after"` // Discord's
	Error   problemError `json:"error"`       // Google's, OpenAI's
}

type problemError struct {
	Message string `json:"message"`
}

// quotaExceeded is the problem type of draft-ietf-httpapi-ratelimit-headers.
const quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// refuse is the answer to a request that may not be sent.
func (t *Transport) refuse(req *http.Request, err error) (*http.Response, error) {
	var refused *budget.RefusedError
	if t.optionsOf(req).Refused != Answer429 || !errors.Is(err, budget.ErrExhausted) || !errors.As(err, &refused) {
		return nil, err
	}
	seconds := max(1, int64((refused.RetryAfter+time.Second-1)/time.Second))
	by := refused.Limit
	if by == "" {
		by = refused.Budget
	}
	text, err := json.Marshal(problem{
		Type: quotaExceeded, Title: "quotactl refused the request; it was not sent", Status: http.StatusTooManyRequests,
		Detail: refused.Error(), Budget: refused.Budget, Operation: refused.Operation, Limit: refused.Limit, RetryAfter: seconds,
		Message: refused.Error(), Seconds: seconds, Error: problemError{Message: refused.Error()},
	})
	if err != nil {
		return nil, errors.Join(refused, err)
	}
	resp := &http.Response{
		Status: "429 Too Many Requests", StatusCode: http.StatusTooManyRequests,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{
			"Content-Type":   {"application/problem+json"},
			"Content-Length": {strconv.Itoa(len(text))},
			"Cache-Control":  {"no-store"},
			"Retry-After":    {strconv.FormatInt(seconds, 10)},
			RefusedHeader:    {by},
		},
		ContentLength: int64(len(text)),
		Body:          made{bytes.NewReader(text)},
		// A request made from that of another response has its verdict.
		Request: new(verdict).attach(nil, nil, req),
	}
	if req.Method == http.MethodHead {
		resp.Body = made{bytes.NewReader(nil)}
	}
	return resp, nil
}
