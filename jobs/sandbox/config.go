package sandbox

import (
	"fmt"
	"time"
)

const (
	// DefaultQuota is YouTube's grant to a new project, in units a day.
	DefaultQuota = 10_000
	// DefaultResults makes four pages of 50.
	DefaultResults = 200

	maxResults = 1_000_000 // YouTube's own ceiling for totalResults
	maxDelay   = 24 * time.Hour
)

// Config describes the upstream. Its zero value grants 10,000 units a day, is fast and never fails.
type Config struct {
	// Quota is what a Pacific day grants, in units. 0 means DefaultQuota; negative is an error.
	Quota int64
	// Results is how many items a listing has over all its pages, 1 to 1,000,000. 0 means DefaultResults.
	Results int
	// Latency is how long each API answer takes, 0 to 24 h; Jitter is the bound of a random part on top, from the same
	// range. Requests are counted before they wait.
	Latency, Jitter time.Duration
	// DropRate is the share, 0 to 1, of accepted requests whose connection is closed without an answer; FailRate the
	// share of the others that are answered 503. Both kinds cost their units. A client on net/http repeats a GET by
	// itself when a reused connection is closed that way, and is charged again, as it would be upstream; it sends it once
	// on fresh connections only (http.Transport.DisableKeepAlives).
	FailRate, DropRate float64
	// Seed decides what is dropped, what fails, and the random latency: servers with the same seed treat the nth request
	// since their start alike. Any value is valid, including 0.
	Seed uint64
	// ReportUsage has each answer to an API request say in headers what the request's day grants and has used, that request
	// included: X-RateLimit-Limit, X-RateLimit-Used and X-RateLimit-Remaining, in units, and X-RateLimit-Reset, the next
	// Pacific midnight in seconds since the Unix epoch. YouTube itself does not say.
	ReportUsage bool
	// LogPath names the request log; it is created if missing. Empty means no log: counts end with the server.
	LogPath string
	// Now is the upstream's clock. Nil means time.Now. It is called under the server's lock, so it must not call the
	// server.
	Now func() time.Time
	// Counted, unless nil, gets each API request once it is counted, in the order of counting. It is called under the
	// server's lock, so it must not call the server, and should not wait.
	Counted func(Request)
}

// Request is an API request that was counted.
type Request struct {
	At           time.Time // UTC
	Method, Path string
	Units        int64  // that it was counted as
	Status       int    // 0: the connection was dropped
	Reason       string // YouTube's reason of an error answer; empty when answered 200
	Used         int64  // of the day, in units, this request included
}

func (c Config) withDefaults() (Config, error) {
	if c.Quota == 0 {
		c.Quota = DefaultQuota
	}
	if c.Results == 0 {
		c.Results = DefaultResults
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Quota < 0 {
		return c, fmt.Errorf("sandbox: quota is %d units: give 1 or more, or 0 for %d", c.Quota, DefaultQuota)
	}
	if c.Results < 0 || c.Results > maxResults {
		return c, fmt.Errorf("sandbox: results is %d: give 1 to %d, or 0 for %d", c.Results, maxResults, DefaultResults)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"latency", c.Latency}, {"jitter", c.Jitter}} {
		if d.value < 0 || d.value > maxDelay {
			return c, fmt.Errorf("sandbox: %s is %v: give 0 to %v", d.name, d.value, maxDelay)
		}
	}
	for _, r := range []struct {
		name  string
		value float64
	}{{"fail rate", c.FailRate}, {"drop rate", c.DropRate}} {
		if !(r.value >= 0 && r.value <= 1) { // written so that NaN is refused too
			return c, fmt.Errorf("sandbox: %s is %v: give a share from 0 to 1", r.name, r.value)
		}
	}
	return c, nil
}
