package sandbox

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// reasonDropped is the reason in the log of a dropped request; its status is 0.
const reasonDropped = "dropped"

var errClosed = errors.New("the sandbox is closed")

// verdict says how one API request is answered.
type verdict struct {
	answer answer
	drop   bool // close the connection instead of answering
	delay  time.Duration
	report report
}

// decide counts one API request and decides its answer. Decision, counting and the line in the log are one step
// under the lock, so the quota is exact to the unit and the log's order is the order of decisions.
func (s *Server) decide(r *http.Request) verdict {
	query := r.URL.Query()
	asked := resolve(r.Method, r.URL.Path, query, s.cfg.Results)
	billed := hasCredential(r, query)

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return verdict{answer: internalError(errClosed)}
	}
	now := s.cfg.Now().UTC().Truncate(time.Microsecond)
	day := dayOf(now, s.zone)
	// All three are drawn even if unused: the nth request's luck must not depend on the rates or on what
	// earlier requests asked for.
	drop, fail, late := s.draw.Float64(), s.draw.Float64(), s.draw.Float64()

	v := verdict{
		answer: asked.answer,
		delay:  s.cfg.Latency + time.Duration(late*float64(s.cfg.Jitter)),
	}
	units := asked.units
	switch {
	case !billed:
		v.answer, units = missingCredential, 0
	case units > s.cfg.Quota-s.days[day].Units:
		v.answer, units = quotaExceeded, 0
	case drop < s.cfg.DropRate:
		v.answer, v.drop = answer{reason: reasonDropped}, true
	case fail < s.cfg.FailRate:
		v.answer = backendError
	}

	e := entry{
		At:     now,
		Method: r.Method,
		Path:   r.URL.Path,
		Query:  shownOf(query).Encode(),
		Units:  units,
		Status: v.answer.status,
		Reason: v.answer.reason,
	}
	if err := s.log.append(e); err != nil {
		return verdict{answer: internalError(err)}
	}
	s.days[day] = s.days[day].plus(e)
	if s.cfg.Counted != nil {
		s.cfg.Counted(Request{e.At, e.Method, e.Path, e.Units, e.Status, e.Reason, s.days[day].Units})
	}
	v.report = report{s.days[day].Units, day.end(s.zone)}
	return v
}

// hasCredential reports whether a request names a project to bill, in one of the ways YouTube accepts. Any project
// will do: the sandbox has a single quota.
func hasCredential(r *http.Request, query url.Values) bool {
	if query.Get("key") != "" || r.Header.Get("X-Goog-Api-Key") != "" {
		return true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.EqualFold(scheme, "Bearer") && token != ""
}
