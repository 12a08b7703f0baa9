package sandbox

import (
	"net/http"
	"strconv"
	"time"
)

// zoneName is where YouTube's day begins at midnight.
const zoneName = "America/Los_Angeles"

// Usage is what one Pacific day saw. Its JSON is the answer of GET /_sandbox/usage.
type Usage struct {
	Requests int64 `json:"requests"` // all API requests, rejected ones too
	Units    int64 `json:"units"`    // units of the accepted ones; above the quota only if it was lowered since
	Rejected int64 `json:"rejected"` // requests refused because they did not fit into the quota
	Failed   int64 `json:"-"`        // requests answered 503 on purpose; their units are in Units
	Dropped  int64 `json:"-"`        // requests left without an answer on purpose; their units are in Units
}

// plus counts one request. Requests as they come and lines of a log read again are both counted here, so that a restart
// cannot count differently.
func (u Usage) plus(e entry) Usage {
	u.Requests++
	u.Units += e.Units
	switch e.Reason {
	case reasonQuotaExceeded:
		u.Rejected++
	case reasonBackendError:
		u.Failed++
	case reasonDropped:
		u.Dropped++
	}
	return u
}

// report is what a day has used by now, and when the next one begins.
type report struct {
	used  int64
	reset time.Time
}

// to puts the report into headers. The quota may have been lowered since.
func (r report) to(h http.Header, quota int64) {
	for name, value := range map[string]int64{
		"Limit": quota, "Used": r.used, "Remaining": max(0, quota-r.used), "Reset": r.reset.Unix(),
	} {
		h.Set("X-RateLimit-"+name, strconv.FormatInt(value, 10))
	}
}

// date is a day of the calendar, without a zone.
type date struct {
	year  int
	month time.Month
	day   int
}

func dayOf(t time.Time, zone *time.Location) date {
	y, m, d := t.In(zone).Date()
	return date{y, m, d}
}

// end is when the next day begins.
func (d date) end(zone *time.Location) time.Time {
	return time.Date(d.year, d.month, d.day+1, 0, 0, 0, 0, zone)
}
