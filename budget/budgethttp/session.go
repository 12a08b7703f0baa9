package budgethttp

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"

	"github.com/quotactl/quotactl/budget/feedback"
)

// mostSessions is how many sessions a Transport remembers as charged.
const mostSessions = 10_000

// session identifies an upload or session by a digest of its value, which may be a
// secret. The zero value means no session.
type session [sha256.Size]byte

// newSession is the session of a key's value; none if the value is empty. It does not
// depend on the operation, because the later requests of an upload may match another
// operation.
func newSession(upstream string, key *feedback.Key, value string) session {
	if value == "" {
		return session{}
	}
	// No name contains a zero byte, so different values never make the same text.
	return sha256.Sum256([]byte(upstream + "\x00" + key.Query + "\x00" + key.Header + "\x00" + value))
}

func (s session) none() bool { return s == session{} }

// id is the id of the session's charge; it is the same in every process.
func (s session) id() string { return "once-" + hex.EncodeToString(s[:]) }

// requestValue is the value that a request carries; empty: none.
func requestValue(key *feedback.Key, req *http.Request) string {
	if key.Header != "" {
		return unrepeated(req.Header.Values(key.Header))
	}
	return req.URL.Query().Get(key.Query)
}

// responseValues are the values that the response to a session's start states: in the
// header itself, or in the query of the addresses to which it may direct the client.
func responseValues(key *feedback.Key, header http.Header) []string {
	var values []string
	if key.Header != "" {
		values = append(values, unrepeated(header.Values(key.Header)))
		return values
	}
	for _, name := range []string{"Location", "Content-Location", "X-Goog-Upload-URL"} {
		if at, err := url.Parse(header.Get(name)); err == nil {
			values = append(values, at.Query().Get(key.Query))
		}
	}
	return values
}

// remember notes a session as charged.
func (t *Transport) remember(one session) {
	if !one.none() {
		t.sessions.Add(one, struct{}{})
	}
}

// Knows reports whether a request of an operation belongs to an upload or session that this
// Transport knows as charged to its budget.
func (t *Transport) Knows(req *http.Request, operation string) bool {
	once := t.spec.Costs[operation].Once
	return once != nil && t.sessions.Contains(newSession(t.budget.Name(), once, requestValue(once, req)))
}
