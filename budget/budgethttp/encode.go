package budgethttp

import (
	"cmp"
	"math"
	"math/big"
	"net/http"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/budget/limit"
)

// farthest is the longest believable time until a reset, and since one. A reset that is
// farther away is ignored.
const farthest = 400 * 24 * time.Hour

// blanks may surround a header's value.
const blanks = " \t"

// roundDown rounds a reported number down to a whole one; outside the range of int64 it
// returns the bound.
func roundDown(n *big.Rat) int64 {
	return clamp(new(big.Int).Div(n.Num(), n.Denom()))
}

// roundUp rounds a reported number up to a whole one, with the same bounds.
func roundUp(n *big.Rat) int64 { return clamp(limit.RoundUp(n)) }

func clamp(n *big.Int) int64 {
	switch {
	case n.IsInt64():
		return n.Int64()
	case n.Sign() < 0:
		return math.MinInt64
	}
	return math.MaxInt64
}

// moment is the reset that a response states.
type moment struct {
	budget.Until      // zero: it states none, or one that has passed
	passed       bool // it is now or earlier
}

// parseUntil reads a reset. A value that looks like another encoding is an error.
func parseUntil(as feedback.Encoding, text string, now time.Time) (moment, error) {
	until, err := readUntil(as, strings.Trim(text, blanks))
	if err != nil {
		return moment{}, errNoInstant
	}
	return sane(until, now)
}

// readUntil reads an instant or a span, without checking how far away it is.
func readUntil(as feedback.Encoding, text string) (budget.Until, error) {
	switch as {
	case feedback.AsEpoch:
		return epoch(text, time.Second)
	case feedback.AsEpochMilli:
		return epoch(text, time.Millisecond)
	case feedback.AsMilliseconds:
		return span(text, time.Millisecond)
	case feedback.AsSeconds:
		return span(text, time.Second)
	case feedback.AsMinutes:
		return span(text, time.Minute)
	case feedback.AsDuration:
		after, err := limit.ParseSpan(text)
		if after >= 0 && after < time.Microsecond && strings.ContainsAny(text, "123456789") && text[0] != '-' {
			after = time.Microsecond // rounded up, as micros does; it may be too short for a Duration
		}
		return budget.Until{After: after}, err
	case feedback.AsRFC3339:
		return timestamp(text)
	case feedback.AsHTTPDate:
		at, err := http.ParseTime(text)
		return instant(at), err
	case feedback.AsRetryAfter:
		if _, isNumber := limit.ParseDecimal(text); isNumber {
			return span(text, time.Second)
		}
		return readUntil(feedback.AsHTTPDate, text)
	}
	return budget.Until{}, errNoInstant
}

// timestamps are the forms of a timestamp. RFC 3339 has the first, and lets a space or
// small letters replace its letters; ISO 8601 has them all.
var timestamps = []string{
	time.RFC3339, "2006-01-02T15:04:05Z0700", "2006-01-02T15:04:05Z07", "2006-01-02T15:04Z07:00", "2006-01-02T15:04Z0700", "2006-01-02T15:04Z07",
}

// timestamp reads an instant with its offset.
func timestamp(text string) (budget.Until, error) {
	text = strings.Replace(strings.ToUpper(text), " ", "T", 1)
	for _, form := range timestamps {
		if at, err := time.Parse(form, text); err == nil {
			return instant(at), nil
		}
	}
	return budget.Until{}, errNoInstant
}

// instant is the instant of a date that a response states. Programs in some languages write
// the year 1 where there is none, others 1970, in any zone.
func instant(at time.Time) budget.Until {
	isNone := func(year int) bool { return year == 1 || year == 1970 }
	if isNone(at.Year()) || isNone(at.UTC().Year()) {
		at = time.Unix(0, 0)
	}
	return budget.Until{At: at.UTC()}
}

// sane checks that a reset is not absurdly far away.
func sane(u budget.Until, now time.Time) (moment, error) {
	after := u.After
	if !u.At.IsZero() {
		after = u.At.Sub(now)
	}
	switch {
	case u.At.Equal(time.Unix(0, 0)): // some send it to mean no reset
		return moment{}, nil
	case after > farthest || after < -farthest:
		return moment{}, errFarAway
	case after <= 0:
		return moment{passed: true}, nil
	}
	return moment{Until: u}, nil
}

// span reads a number of units of time from now.
func span(text string, unit time.Duration) (budget.Until, error) {
	n, err := micros(text, unit)
	const most = int64(2 * farthest / time.Microsecond) // more would overflow a span
	return budget.Until{After: time.Duration(min(max(n, -most), most)) * time.Microsecond}, err
}

// epoch reads a number of units of time since 1970.
func epoch(text string, unit time.Duration) (budget.Until, error) {
	n, err := micros(text, unit)
	return budget.Until{At: time.UnixMicro(n).UTC()}, err
}

// micros reads a number of units of time as microseconds, rounded up, so that no client
// retries too early.
func micros(text string, unit time.Duration) (int64, error) {
	n, ok := limit.ParseDecimal(text)
	if !ok {
		return 0, errNoNumber
	}
	return roundUp(n.Mul(n, big.NewRat(unit.Microseconds(), 1))), nil
}

// RetryAfter is the time that a response asks the client to wait, by its Retry-After: a
// number of seconds or a date; else by its Retry-After-Ms. It is 0 if there is none, or if
// it has passed.
func RetryAfter(header http.Header) time.Duration {
	for _, place := range []feedback.Source{
		{Header: "Retry-After", As: feedback.AsRetryAfter}, {Header: "Retry-After-Ms", As: feedback.AsMilliseconds},
	} {
		text, err := single(header.Values(place.Header), place.As)
		until, wrong := readUntil(place.As, strings.Trim(text, blanks))
		switch {
		case err != nil || wrong != nil:
		case until.After > 0:
			return until.After
		case !until.At.IsZero():
			return max(0, time.Until(until.At))
		}
	}
	return 0
}

// rateLimit is one policy of a RateLimit field.
type rateLimit struct {
	found        bool
	remaining    int64
	hasRemaining bool
	reset        int64 // seconds from now
	hasReset     bool
}

// readRateLimit reads the policy with a name, or the first one if the name is empty, from
// a RateLimit field of draft-ietf-httpapi-ratelimit-headers; zero if there is none. A
// field that is malformed anywhere is an error and is ignored as a whole, as is one that
// has the policy twice with different numbers. Repeated lines are one field.
func readRateLimit(lines []string, policy string) (rateLimit, error) {
	list, err := httpsfv.UnmarshalList(lines)
	if err != nil && len(lines) > 0 {
		return rateLimit{}, errNoPolicy
	}
	var limit rateLimit
	var wrong error
	for _, member := range list {
		name, params, isPolicy := ratePolicy(member)
		if !isPolicy {
			return rateLimit{}, errNoPolicy
		}
		if policy = cmp.Or(policy, name); name != policy {
			continue
		}
		one := rateLimit{found: true}
		one.remaining, one.hasRemaining, err = parameter(params, "r", math.Floor)
		wrong = cmp.Or(wrong, err)
		one.reset, one.hasReset, err = parameter(params, "t", math.Ceil)
		wrong = cmp.Or(wrong, err)
		if limit.found && one != limit {
			return rateLimit{}, errDiffer
		}
		limit = one
	}
	return limit, wrong
}

// parameter is a numeric parameter of a policy, rounded to a whole number.
func parameter(params *httpsfv.Params, name string, round func(float64) float64) (n int64, ok bool, err error) {
	value, ok := params.Get(name)
	if !ok {
		return 0, false, nil
	}
	switch value := value.(type) {
	case int64:
		return value, true, nil
	case float64: // at most twelve digits before the point
		return int64(round(value)), true, nil
	}
	return 0, false, errNoNumber
}

// ratePolicy reads a member of a RateLimit field; false if it has no name and so is not a
// policy.
func ratePolicy(member httpsfv.Member) (name string, params *httpsfv.Params, ok bool) {
	item, isItem := member.(httpsfv.Item)
	if !isItem {
		return "", nil, false
	}
	switch value := item.Value.(type) {
	case string:
		return value, item.Params, true
	case httpsfv.Token:
		return string(value), item.Params, true
	}
	return "", nil, false
}
