package budgethttp

import (
	"errors"
	"math"
	"math/big"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/budget/limit"
)

// noon is when the tests' responses come.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// Remaining is rounded down and used up; a number beyond an int64 becomes its bound.
func TestRounding(t *testing.T) {
	for text, want := range map[string][2]int64{ // down, up
		"0": {0, 0}, "-0.0": {0, 0}, "4999": {4999, 4999}, "12.000": {12, 12}, "2.5": {2, 3}, "2.0000000000000000000001": {2, 3}, "-2.5": {-3, -2},
		"1e1": {10, 10}, "25e-1": {2, 3}, "1e-300": {0, 1}, "1E+2": {100, 100}, "1e999999999999999999999": {math.MaxInt64, math.MaxInt64},
		"-1e999999999": {math.MinInt64, math.MinInt64}, "0e999999999": {0, 0}, "1e-999999999": {0, 1}, "-1e-999999999": {-1, 0},
		"9223372036854775807": {math.MaxInt64, math.MaxInt64}, "9223372036854775806.5": {math.MaxInt64 - 1, math.MaxInt64},
		"-9223372036854775808": {math.MinInt64, math.MinInt64}, "99999999999999999999": {math.MaxInt64, math.MaxInt64},
	} {
		n, ok := limit.ParseDecimal(text)
		if !ok || roundDown(n) != want[0] || roundUp(n) != want[1] {
			t.Errorf("%q is %v, %t; want %v", text, n, ok, want)
		}
	}
}

func TestParseUntil(t *testing.T) {
	at := func(after time.Duration) budget.Until { return budget.Until{At: noon.Add(after)} }
	in := func(after time.Duration) budget.Until { return budget.Until{After: after} }
	const day = 24 * time.Hour
	for _, test := range []struct {
		as   feedback.Encoding
		text string
		want budget.Until
	}{
		{feedback.AsEpoch, "1795176300", at(5 * time.Minute)},
		{feedback.AsEpoch, " 1795176000.5 ", at(500 * time.Millisecond)},
		{feedback.AsEpoch, "1795176001.0000001", at(time.Second + time.Microsecond)}, // rounded up
		{feedback.AsEpoch, "1795176000", budget.Until{}},                             // now
		{feedback.AsEpoch, "1795175999", budget.Until{}},                             // past
		{feedback.AsEpoch, "1829736000", at(400 * day)},
		{feedback.AsEpoch, "1829736001", budget.Until{}},    // absurd
		{feedback.AsEpoch, "1795176300000", budget.Until{}}, // milliseconds are not guessed
		{feedback.AsEpoch, "300", budget.Until{}},           // nor seconds
		{feedback.AsEpoch, "-1", budget.Until{}},
		{feedback.AsEpoch, "1e9", budget.Until{}},
		{feedback.AsEpoch, "99999999999999999999999", budget.Until{}},
		{feedback.AsEpochMilli, "1795176300000", at(5 * time.Minute)},
		{feedback.AsEpochMilli, "1795176300", budget.Until{}},
		{feedback.AsSeconds, "36000", in(10 * time.Hour)},
		{feedback.AsSeconds, "0.25", in(250 * time.Millisecond)},
		{feedback.AsSeconds, "0.0000001", in(time.Microsecond)},
		{feedback.AsSeconds, "0", budget.Until{}},
		{feedback.AsSeconds, "-5", budget.Until{}},
		{feedback.AsSeconds, "1795176300", budget.Until{}}, // an epoch is not guessed
		{feedback.AsSeconds, "34560000", in(400 * day)},
		{feedback.AsSeconds, "34560000.000001", budget.Until{}},
		{feedback.AsSeconds, "9223372036854775807", budget.Until{}},
		{feedback.AsSeconds, "5s", budget.Until{}},
		{feedback.AsMilliseconds, "1500", in(1500 * time.Millisecond)},
		{feedback.AsMilliseconds, "0.5", in(500 * time.Microsecond)},
		{feedback.AsMilliseconds, "0.0001", in(time.Microsecond)},
		{feedback.AsMilliseconds, "5ms", budget.Until{}},
		{feedback.AsMinutes, "15", in(15 * time.Minute)},
		{feedback.AsMinutes, "0.5", in(30 * time.Second)},
		{feedback.AsMinutes, "-1", budget.Until{}},
		{feedback.AsDuration, "6m0s", in(6 * time.Minute)},
		{feedback.AsDuration, "7.66s", in(7660 * time.Millisecond)},
		{feedback.AsDuration, " 12ms ", in(12 * time.Millisecond)},
		{feedback.AsDuration, "2m59.56s", in(179_560 * time.Millisecond)},
		{feedback.AsDuration, "-6m0s", budget.Until{}},
		{feedback.AsDuration, "0s", budget.Until{}},
		{feedback.AsDuration, "9601h", budget.Until{}},
		{feedback.AsDuration, "99999999999h", budget.Until{}},
		{feedback.AsDuration, "0.000000001s", in(time.Microsecond)},
		{feedback.AsDuration, "0.4ns", in(time.Microsecond)},
		{feedback.AsDuration, "0.00000000000001d", in(time.Microsecond)},
		{feedback.AsDuration, "999ns", in(time.Microsecond)},
		{feedback.AsDuration, "1us", in(time.Microsecond)},
		{feedback.AsDuration, "1.001us", in(1001 * time.Nanosecond)},
		{feedback.AsDuration, "0.0ns", budget.Until{}},
		{feedback.AsMinutes, "1e-300", in(time.Microsecond)},
		{feedback.AsRetryAfter, "0.0000000001", in(time.Microsecond)},
		{feedback.AsDuration, "3.000000001s", in(3*time.Second + time.Nanosecond)},
		{feedback.AsDuration, "6 m", budget.Until{}},
		{feedback.AsDuration, "60", budget.Until{}},
		{feedback.AsRFC3339, "2026-11-20T12:01:00Z", at(time.Minute)},
		{feedback.AsRFC3339, "2026-11-20T14:01:00.25+02:00", at(time.Minute + 250*time.Millisecond)},
		{feedback.AsRFC3339, "2026-11-20T11:59:59Z", budget.Until{}},
		{feedback.AsRFC3339, "9999-12-31T23:59:59Z", budget.Until{}},
		{feedback.AsRFC3339, "2026-11-20T12:01Z", at(time.Minute)},
		{feedback.AsRFC3339, "2026-11-20T12:01:00+0000", at(time.Minute)},
		{feedback.AsRFC3339, "2026-11-20T12:01+0000", at(time.Minute)},
		{feedback.AsRFC3339, "2026-11-20T14:01+02:00", at(time.Minute)},
		{feedback.AsRFC3339, "2026-11-20T14:01:00.5+02", at(time.Minute + 500*time.Millisecond)},
		{feedback.AsRFC3339, "2026-11-20T12:01:00.000000001Z", at(time.Minute + time.Nanosecond)},
		{feedback.AsRFC3339, "2026-11-20 12:01:00z", at(time.Minute)},
		{feedback.AsRFC3339, "2026-11-20t06:31:00-0530", at(time.Minute)},
		{feedback.AsRFC3339, "2026-11-20 12:01:00", budget.Until{}}, // no offset
		{feedback.AsRFC3339, "2026-11-20T12:01", budget.Until{}},
		{feedback.AsRFC3339, "2026-11-20", budget.Until{}},
		{feedback.AsHTTPDate, "Fri, 20 Nov 2026 12:01:00 GMT", at(time.Minute)},
		{feedback.AsHTTPDate, "Friday, 20-Nov-26 12:01:00 GMT", at(time.Minute)},
		{feedback.AsHTTPDate, "Fri Nov 20 12:01:00 2026", at(time.Minute)},
		{feedback.AsHTTPDate, "Fri, 20 Nov 2026 11:59:00 GMT", budget.Until{}},
		{feedback.AsHTTPDate, "Fri, 32 Nov 2026 12:01:00 GMT", budget.Until{}},
		{feedback.AsHTTPDate, "120", budget.Until{}},
		{feedback.AsRetryAfter, "120", in(2 * time.Minute)},
		{feedback.AsRetryAfter, "2.0", in(2 * time.Second)},
		{feedback.AsRetryAfter, "0", budget.Until{}},
		{feedback.AsRetryAfter, "-1", budget.Until{}},
		{feedback.AsRetryAfter, "Fri, 20 Nov 2026 12:01:00 GMT", at(time.Minute)},
		{feedback.AsRetryAfter, "Friday, 20-Nov-26 12:01:00 GMT", at(time.Minute)},
		{feedback.AsRetryAfter, "Fri Nov 20 12:01:00 2026", at(time.Minute)},
		{feedback.AsRetryAfter, "soon", budget.Until{}},
		{feedback.AsRetryAfter, "1795176300", budget.Until{}},
		{feedback.AsNumber, "60", budget.Until{}},
		{"", "60", budget.Until{}},
	} {
		if got, _ := parseUntil(test.as, test.text, noon); got.Until != test.want {
			t.Errorf("%q as %s is %v, want %v", test.text, test.as, got, test.want)
		}
	}
}

// A reset of now or earlier has passed, however it is written; what states none, or cannot
// be read, has not.
func TestParsePassed(t *testing.T) {
	for as, test := range map[feedback.Encoding]struct{ passed, other []string }{
		feedback.AsEpoch:        {[]string{"1795176000", "1795175999.9", "1795089600"}, []string{"0", "1795176001", "300", "-1"}},
		feedback.AsEpochMilli:   {[]string{"1795176000000", "1795175999999"}, []string{"0", "1795176000001", "1795176000"}},
		feedback.AsMilliseconds: {[]string{"0", "-1"}, []string{"1", "soon"}},
		feedback.AsSeconds:      {[]string{"0", "-0.5", "0.0"}, []string{"0.0000001", "1795176000"}},
		feedback.AsMinutes:      {[]string{"0", "-1"}, []string{"1"}},
		feedback.AsDuration:     {[]string{"0s", "-6m0s", "0", "-0.4ns", "0.00h"}, []string{"1ns", "0.4ns", "1"}},
		feedback.AsRFC3339:      {[]string{"2026-11-20T12:00Z", "2026-11-20T11:59:59+0000"}, []string{"0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z"}},
		feedback.AsHTTPDate:     {[]string{"Fri, 20 Nov 2026 12:00:00 GMT", "Fri Nov 20 11:59:00 2026"}, []string{"0"}},
		feedback.AsRetryAfter:   {[]string{"0", "-1", "Fri, 20 Nov 2026 12:00:00 GMT"}, []string{"1", "never"}},
	} {
		for _, text := range test.passed {
			if got, err := parseUntil(as, text, noon); !got.passed || !got.IsZero() || err != nil {
				t.Errorf("%q as %s is %+v, %v; it has passed", text, as, got, err)
			}
		}
		for _, text := range test.other {
			if got, err := parseUntil(as, text, noon); got.passed {
				t.Errorf("%q as %s is %+v, %v; it has not passed", text, as, got, err)
			}
		}
	}
}

// A date in the year 1 or 1970, in its own zone or in UTC, is none: no reset, and no fault. A
// number that is small is the fault of another unit.
func TestYearsOfNoReset(t *testing.T) {
	for as, test := range map[feedback.Encoding]struct{ none, wrong []string }{
		feedback.AsRFC3339: {
			[]string{"0001-01-01T00:00:00Z", "0001-12-31T23:59Z", "0001-01-01T00:00:00+02:00", "0001-01-01T00:00:00-0800", "1970-01-01T00:00:00Z", "1970-11-30 08:00:00Z", "1970-01-01T00:00:00+01:00", "1969-12-31T16:00:00-08:00"},
			[]string{"0002-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "1971-01-01T00:00:00Z"},
		},
		feedback.AsHTTPDate: {
			[]string{"Thu, 01 Jan 1970 00:00:00 GMT", "Mon, 30 Nov 1970 12:00:00 GMT", "Monday, 30-Nov-70 12:00:00 GMT", "Mon Nov 30 12:00:00 1970", "Mon, 01 Jan 0001 00:00:00 GMT"},
			[]string{"Fri, 01 Jan 1971 00:00:00 GMT"},
		},
		feedback.AsRetryAfter: {[]string{"Mon, 30 Nov 1970 12:00:00 GMT", "Mon, 30 Nov 0001 12:00:00 GMT"}, []string{"Wed, 31 Dec 1969 23:59:59 GMT"}},
		feedback.AsEpoch:      {[]string{"0"}, []string{"300", "31535999"}},
		feedback.AsEpochMilli: {[]string{"0"}, []string{"1795176300"}},
	} {
		for _, text := range test.none {
			if got, err := parseUntil(as, text, noon); got != (moment{}) || err != nil {
				t.Errorf("%q as %s is %+v, %v; want none", text, as, got, err)
			}
		}
		for _, text := range test.wrong {
			if got, err := parseUntil(as, text, noon); got != (moment{}) || !errors.Is(err, errFarAway) {
				t.Errorf("%q as %s is %+v, %v; want that it is far away", text, as, got, err)
			}
		}
	}
}

func TestRateLimitField(t *testing.T) {
	both := func(remaining, reset int64) rateLimit {
		return rateLimit{found: true, remaining: remaining, hasRemaining: true, reset: reset, hasReset: true}
	}
	for _, test := range []struct {
		lines  []string
		policy string
		want   rateLimit
		ok     bool // all that stands there could be read
	}{
		{[]string{`"day";r=100;t=36000`}, "", both(100, 36000), true},
		{[]string{`"day";r=100;t=36000`}, "day", both(100, 36000), true},
		{[]string{`"day";r=100;t=36000`}, "burst", rateLimit{}, true},
		{[]string{`day;r=100;t=36000`}, "day", both(100, 36000), true},
		{[]string{`"burst";r=3;t=5, "day";r=100;t=36000`}, "", both(3, 5), true},
		{[]string{`"burst";r=3;t=5, "day";r=100;t=36000`}, "day", both(100, 36000), true},
		{[]string{`"burst";r=3;t=5`, `"day";r=100;t=36000`}, "day", both(100, 36000), true},
		{[]string{`"day";t=5`}, "day", rateLimit{found: true, reset: 5, hasReset: true}, true},
		{[]string{`"day";r=5`}, "day", rateLimit{found: true, remaining: 5, hasRemaining: true}, true},
		{[]string{`"day";r=5.9;t=7.1`}, "day", both(5, 8), true}, // less, and later
		{[]string{`"day";r=5;t="7"`}, "day", rateLimit{found: true, remaining: 5, hasRemaining: true}, false},
		{[]string{`"day";r;t=7`}, "day", rateLimit{found: true, reset: 7, hasReset: true}, false},
		{[]string{`"day";r=5;r=6`}, "day", rateLimit{found: true, remaining: 6, hasRemaining: true}, true},
		{[]string{`"day";r=1;t=2;pk=:c29tZQ==:`}, "day", both(1, 2), true},
		{[]string{`"day";r=1;t=2`, `"day";t=2;r=1`}, "day", both(1, 2), true},
		{[]string{`"day";r=1;t=2, "day";r=1;t=2`}, "", both(1, 2), true},
		// A policy twice, with different numbers.
		{[]string{`"day";r=1;t=2`, `"day";r=3;t=2`}, "day", rateLimit{}, false},
		{[]string{`"day";r=1;t=2, "other";r=1, "day";r=1;t=3`}, "", rateLimit{}, false},
		{[]string{`"day";r=-1;t=-2`}, "day", both(-1, -2), true},
		// Malformed anywhere: ignored whole, whichever line it is in.
		{[]string{`"day";r=100;t=36000, "burst`}, "day", rateLimit{}, false},
		{[]string{`"day";r=100;t=36000`, `"burst";R=1`}, "day", rateLimit{}, false},
		{[]string{`"day";r=100;t=36000,`}, "day", rateLimit{}, false},
		{[]string{`"day";r=100;t=36000, 7`}, "day", rateLimit{}, false},
		{[]string{`("day");r=100;t=36000`}, "", rateLimit{}, false},
		{[]string{`limit=100, remaining=50, reset=5`}, "", rateLimit{}, false},
		{[]string{`100`}, "", rateLimit{}, false},
		{[]string{`"day";r=1000000000000000`}, "", rateLimit{}, false},
		{[]string{``}, "", rateLimit{}, true},
		{nil, "", rateLimit{}, true},
	} {
		if got, err := readRateLimit(test.lines, test.policy); got != test.want || (err == nil) != test.ok {
			t.Errorf("policy %q of %q is %+v, %v; want %+v, %t", test.policy, test.lines, got, err, test.want, test.ok)
		}
	}
}

// encodingsRead are all that a header's value may have.
var encodingsRead = []feedback.Encoding{
	feedback.AsNumber, feedback.AsEpoch, feedback.AsEpochMilli, feedback.AsMilliseconds, feedback.AsSeconds, feedback.AsMinutes, feedback.AsDuration,
	feedback.AsRFC3339, feedback.AsHTTPDate, feedback.AsRetryAfter, feedback.AsRateLimit,
}

// aNumber is what a number may look like, by definition.
var aNumber = regexp.MustCompile(`^[ \t]*[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?[ \t]*$`)

// Whatever a header holds, a reset that is read lies ahead and not absurdly far, as
// an instant or a span; a number is the one that stands there; and several lines
// are one list.
func FuzzHeaderValue(f *testing.F) {
	for _, seed := range []struct{ one, two, item string }{
		{"1795176300", "", ""},                            // GitHub, X: x-ratelimit-reset
		{"1795176300.123", "", ""},                        // Discord: X-RateLimit-Reset
		{"36000", "", ""},                                 // Reddit: X-Ratelimit-Reset
		{"6m0s", "", ""},                                  // OpenAI: x-ratelimit-reset-tokens
		{"2026-11-20T12:01:00Z", "", ""},                  // Anthropic: anthropic-ratelimit-requests-reset
		{"34,1023", "", "2"},                              // Strava: X-RateLimit-Usage
		{"32/40", "", "1"},                                // Shopify: X-Shopify-Shop-Api-Call-Limit
		{"Fri, 20 Nov 2026 12:01:00 GMT", "", ""},         // Retry-After
		{"Friday, 20-Nov-26 12:01:00 GMT", "", ""},        //
		{"Fri Nov 20 12:01:00 2026", "", ""},              //
		{`"day";r=100;t=36000`, `"burst";r=1;t=1`, "day"}, // the IETF draft
		{"4999", "4999", ""}, {"-1", "NaN", "2"}, {"1e9", "99999999999999999999", "9"}, {" 5 ", "\t", "0"},
	} {
		for i := range encodingsRead {
			f.Add(uint8(i), seed.one, seed.two, seed.item)
		}
	}
	f.Fuzz(func(t *testing.T, as uint8, one, two, item string) {
		source := &feedback.Source{Header: "X-Value", As: encodingsRead[int(as)%len(encodingsRead)], Item: item}
		header := http.Header{"X-Value": {one}}
		if two != "" {
			header.Add("x-value", two)
		}
		seen := newContent(header, nil)
		until, _ := seen.until(source, noon)
		after := until.After
		if !until.At.IsZero() {
			after = until.At.Sub(noon)
		}
		if !until.IsZero() && (after <= 0 || after > farthest || until.At.IsZero() == (until.After == 0)) {
			t.Fatalf("%q as %s is %+v, want an instant or a span up to %s", header, source.As, until, farthest)
		}
		n, wrong := seen.number(source)
		if item == "" && two == "" && source.As == feedback.AsNumber && len(one) <= 40 && !strings.Contains(one, ",") { // a list is its values
			if isNumber := aNumber.MatchString(one); isNumber != (n != nil) || isNumber == (wrong != nil) {
				t.Fatalf("%q is %v, %v; want a number: %t", one, n, wrong, isNumber)
			}
			want, _, err := new(big.Float).SetPrec(2000).Parse(strings.Trim(one, " \t"), 10)
			if n != nil && err == nil && want.MantExp(nil) < 1000 && want.MantExp(nil) > -1000 {
				if up, _ := want.Int64(); up > -1e9 && up < 1e9 && (roundDown(n) > up || roundUp(n) < up || roundUp(n)-roundDown(n) > 1) {
					t.Fatalf("%q is %v, want about %s", one, n, want)
				}
			}
		}
		joined := newContent(http.Header{"X-Value": {one + ", " + two}}, nil)
		if two == "" {
			joined = newContent(http.Header{"X-Value": {one, one}}, nil) // as a proxy may repeat it
			if item != "" {
				return
			}
		}
		if again, _ := joined.until(source, noon); again != until {
			t.Fatalf("%q as %s: in one line %+v, in two %+v", header, source.As, again, until)
		}
		if m, wrongToo := joined.number(source); (wrongToo != nil) != (wrong != nil) || (m != nil) != (n != nil) || m != nil && m.Cmp(n) != 0 {
			t.Fatalf("%q as %s: in one line %v, %v, in two %v, %v", header, source.As, m, wrongToo, n, wrong)
		}
	})
}

// Whatever a RateLimit field holds: written anew as it was understood, it reads the
// same; what is no list of named items says nothing.
func FuzzRateLimit(f *testing.F) {
	for _, seed := range []string{
		`"day";r=100;t=36000`, `"burst";r=100;t=60,"daily";r=1000;t=86400`, `burst;r=0;t=1`, `"problemPolicy";r=0;t=10;pk=:cHJpdmF0ZQ==:`,
		`"a\"b";r=-1`, `"x";r=5.0`, `();r=1`, `limit=100, remaining=50, reset=5`, `"day";r`, `@1659578233`, `%"f%c3%bc"`, `"day";r=999999999999999`,
	} {
		f.Add(seed, "", "")
		f.Add(seed, `"day";r=7;t=8`, "day")
	}
	f.Fuzz(func(t *testing.T, one, two, policy string) {
		lines := []string{one}
		if two != "" {
			lines = append(lines, two)
		}
		got, wrong := readRateLimit(lines, policy)
		list, err := httpsfv.UnmarshalList(lines)
		if err != nil {
			if wrong == nil || got != (rateLimit{}) {
				t.Fatalf("%q is malformed, and says %+v", lines, got)
			}
			return
		}
		text, err := httpsfv.Marshal(list)
		if err != nil {
			return // what the library reads and does not write
		}
		if again, wrongToo := readRateLimit([]string{text}, policy); again != got || !errors.Is(wrongToo, wrong) {
			t.Fatalf("%q says %+v, %v; written anew, %q, it says %+v, %v", lines, got, wrong, text, again, wrongToo)
		}
		named := slices.ContainsFunc(list, func(m httpsfv.Member) bool {
			name, _, isPolicy := ratePolicy(m)
			return isPolicy && (policy == "" || name == policy)
		})
		if got.found && !named {
			t.Fatalf("%q has no policy %q, and says %+v", lines, policy, got)
		}
	})
}
