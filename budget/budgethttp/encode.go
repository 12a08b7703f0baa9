package budgethttp

import (
	"math/big"
	"net/http"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/quotactl/quotactl/budget"
)

// farthest is the longest time until a reset that is believed: what is told to
// come later, or has passed, is no reset.
const farthest = 400 * 24 * time.Hour

// mostDigits bounds the length of a number, in bytes.
const mostDigits = 40

// blanks is what may stand around a header's value.
const blanks = " \t"

// parseNumber reads a whole number; "12.0" is one, and "1e9" is none.
func parseNumber(text string) (int64, bool) {
	n, ok := decimal(text)
	if !ok || !n.IsInt() || !n.Num().IsInt64() {
		return 0, false
	}
	return n.Num().Int64(), true
}

// decimal reads digits, perhaps with a sign before and a fraction behind.
func decimal(text string) (*big.Rat, bool) {
	text = strings.Trim(text, blanks)
	digits := strings.TrimLeft(text, "+-")
	whole, fraction, isFraction := strings.Cut(digits, ".")
	if len(text) > mostDigits || len(text)-len(digits) > 1 || !isDigits(whole) || isFraction && !isDigits(fraction) {
		return nil, false
	}
	return new(big.Rat).SetString(text)
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// parseUntil reads a reset. What is malformed, past or absurd is none: what looks
// like another encoding is not taken for it.
func parseUntil(as budget.Encoding, text string, now time.Time) budget.Until {
	text = strings.Trim(text, blanks)
	switch as {
	case budget.AsEpoch:
		return sane(epoch(text, time.Second), now)
	case budget.AsEpochMilli:
		return sane(epoch(text, time.Millisecond), now)
	case budget.AsSeconds:
		return sane(span(text, time.Second), now)
	case budget.AsMinutes:
		return sane(span(text, time.Minute), now)
	case budget.AsDuration:
		if after, err := time.ParseDuration(text); err == nil {
			return sane(budget.Until{After: after}, now)
		}
	case budget.AsRFC3339:
		if at, err := time.Parse(time.RFC3339, text); err == nil {
			return sane(budget.Until{At: at.UTC()}, now)
		}
	case budget.AsHTTPDate:
		if at, err := http.ParseTime(text); err == nil {
			return sane(budget.Until{At: at.UTC()}, now)
		}
	case budget.AsRetryAfter:
		if _, isNumber := decimal(text); isNumber {
			return sane(span(text, time.Second), now)
		}
		return parseUntil(budget.AsHTTPDate, text, now)
	}
	return budget.Until{}
}

// sane is a reset that lies ahead, and not absurdly far; else none.
func sane(u budget.Until, now time.Time) budget.Until {
	after := u.After
	if !u.At.IsZero() {
		after = u.At.Sub(now)
	}
	if after <= 0 || after > farthest {
		return budget.Until{}
	}
	return u
}

// span reads a number of units of time from now.
func span(text string, unit time.Duration) budget.Until {
	n, ok := micros(text, unit)
	if !ok || n > farthest.Microseconds() {
		return budget.Until{}
	}
	return budget.Until{After: time.Duration(n) * time.Microsecond}
}

// epoch reads a number of units of time since 1970.
func epoch(text string, unit time.Duration) budget.Until {
	n, ok := micros(text, unit)
	if !ok {
		return budget.Until{}
	}
	return budget.Until{At: time.UnixMicro(n).UTC()}
}

// micros reads a number of units of time as microseconds, rounded up, so that
// nobody comes back too soon.
func micros(text string, unit time.Duration) (int64, bool) {
	n, ok := decimal(text)
	if !ok {
		return 0, false
	}
	n.Mul(n, big.NewRat(unit.Microseconds(), 1))
	up := new(big.Int).Add(n.Num(), new(big.Int).Sub(n.Denom(), big.NewInt(1)))
	up.Div(up, n.Denom())
	return up.Int64(), up.IsInt64()
}

// rateLimit is one policy of a RateLimit field.
type rateLimit struct {
	remaining    int64
	hasRemaining bool
	reset        int64 // seconds from now
	hasReset     bool
}

// readRateLimit reads the policy of a name from a RateLimit field of
// draft-ietf-httpapi-ratelimit-headers, or the first without a name. A field that is
// malformed anywhere is ignored whole; lines that repeat it are one field.
func readRateLimit(lines []string, policy string) (rateLimit, bool) {
	list, err := httpsfv.UnmarshalList(lines)
	if err != nil {
		return rateLimit{}, false
	}
	var limit rateLimit
	found := false
	for _, member := range list {
		name, params, isPolicy := ratePolicy(member)
		if !isPolicy {
			return rateLimit{}, false
		}
		if found || policy != "" && name != policy {
			continue
		}
		found = true
		if r, ok := params.Get("r"); ok {
			limit.remaining, limit.hasRemaining = r.(int64)
		}
		if t, ok := params.Get("t"); ok {
			limit.reset, limit.hasReset = t.(int64)
		}
	}
	return limit, found
}

// ratePolicy is a member of a RateLimit field; false when it is none, as it has no
// name.
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
