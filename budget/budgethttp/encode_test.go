package budgethttp

import (
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
)

// noon is when the tests' responses come.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func TestParseNumber(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "4999": 4999, " 12\t": 12, "-3": -3, "+3": 3, "12.0": 12, "12.000": 12, "007": 7, "010": 10,
		"9223372036854775807": math.MaxInt64, "-9223372036854775808": math.MinInt64,
	} {
		if got, ok := parseNumber(text); !ok || got != want {
			t.Errorf("%q is %d, %t; want %d", text, got, ok, want)
		}
	}
	for _, text := range []string{
		"", " ", "-", "+", ".", "5.", ".5", "1.5", "1e9", "1E9", "NaN", "Inf", "-Infinity", "0x10", "1_000", "1,000", "1 000", "--1", "+-1",
		"1/2", "9223372036854775808", "99999999999999999999", strings.Repeat("0", 41), "٣", "null", "12 units", "1.0.0", "1.-0",
	} {
		if got, ok := parseNumber(text); ok {
			t.Errorf("%q is %d, want nothing", text, got)
		}
	}
}

func TestParseUntil(t *testing.T) {
	at := func(after time.Duration) budget.Until { return budget.Until{At: noon.Add(after)} }
	in := func(after time.Duration) budget.Until { return budget.Until{After: after} }
	const day = 24 * time.Hour
	for _, test := range []struct {
		as   budget.Encoding
		text string
		want budget.Until
	}{
		{budget.AsEpoch, "1795176300", at(5 * time.Minute)},
		{budget.AsEpoch, " 1795176000.5 ", at(500 * time.Millisecond)},
		{budget.AsEpoch, "1795176001.0000001", at(time.Second + time.Microsecond)}, // rounded up
		{budget.AsEpoch, "1795176000", budget.Until{}},                             // now
		{budget.AsEpoch, "1795175999", budget.Until{}},                             // past
		{budget.AsEpoch, "1829736000", at(400 * day)},
		{budget.AsEpoch, "1829736001", budget.Until{}},    // absurd
		{budget.AsEpoch, "1795176300000", budget.Until{}}, // milliseconds are not guessed
		{budget.AsEpoch, "300", budget.Until{}},           // nor seconds
		{budget.AsEpoch, "-1", budget.Until{}},
		{budget.AsEpoch, "1e9", budget.Until{}},
		{budget.AsEpoch, "99999999999999999999999", budget.Until{}},
		{budget.AsEpochMilli, "1795176300000", at(5 * time.Minute)},
		{budget.AsEpochMilli, "1795176300", budget.Until{}},
		{budget.AsSeconds, "36000", in(10 * time.Hour)},
		{budget.AsSeconds, "0.25", in(250 * time.Millisecond)},
		{budget.AsSeconds, "0.0000001", in(time.Microsecond)},
		{budget.AsSeconds, "0", budget.Until{}},
		{budget.AsSeconds, "-5", budget.Until{}},
		{budget.AsSeconds, "1795176300", budget.Until{}}, // an epoch is not guessed
		{budget.AsSeconds, "34560000", in(400 * day)},
		{budget.AsSeconds, "34560000.000001", budget.Until{}},
		{budget.AsSeconds, "9223372036854775807", budget.Until{}},
		{budget.AsSeconds, "5s", budget.Until{}},
		{budget.AsMinutes, "15", in(15 * time.Minute)},
		{budget.AsMinutes, "0.5", in(30 * time.Second)},
		{budget.AsMinutes, "-1", budget.Until{}},
		{budget.AsDuration, "6m0s", in(6 * time.Minute)},
		{budget.AsDuration, "7.66s", in(7660 * time.Millisecond)},
		{budget.AsDuration, " 12ms ", in(12 * time.Millisecond)},
		{budget.AsDuration, "2m59.56s", in(179_560 * time.Millisecond)},
		{budget.AsDuration, "-6m0s", budget.Until{}},
		{budget.AsDuration, "0s", budget.Until{}},
		{budget.AsDuration, "9601h", budget.Until{}},
		{budget.AsDuration, "99999999999h", budget.Until{}},
		{budget.AsDuration, "6 m", budget.Until{}},
		{budget.AsDuration, "60", budget.Until{}},
		{budget.AsRFC3339, "2026-11-20T12:01:00Z", at(time.Minute)},
		{budget.AsRFC3339, "2026-11-20T14:01:00.25+02:00", at(time.Minute + 250*time.Millisecond)},
		{budget.AsRFC3339, "2026-11-20T11:59:59Z", budget.Until{}},
		{budget.AsRFC3339, "9999-12-31T23:59:59Z", budget.Until{}},
		{budget.AsRFC3339, "2026-11-20 12:01:00", budget.Until{}},
		{budget.AsHTTPDate, "Fri, 20 Nov 2026 12:01:00 GMT", at(time.Minute)},
		{budget.AsHTTPDate, "Friday, 20-Nov-26 12:01:00 GMT", at(time.Minute)},
		{budget.AsHTTPDate, "Fri Nov 20 12:01:00 2026", at(time.Minute)},
		{budget.AsHTTPDate, "Fri, 20 Nov 2026 11:59:00 GMT", budget.Until{}},
		{budget.AsHTTPDate, "Fri, 32 Nov 2026 12:01:00 GMT", budget.Until{}},
		{budget.AsHTTPDate, "120", budget.Until{}},
		{budget.AsRetryAfter, "120", in(2 * time.Minute)},
		{budget.AsRetryAfter, "2.0", in(2 * time.Second)},
		{budget.AsRetryAfter, "0", budget.Until{}},
		{budget.AsRetryAfter, "-1", budget.Until{}},
		{budget.AsRetryAfter, "Fri, 20 Nov 2026 12:01:00 GMT", at(time.Minute)},
		{budget.AsRetryAfter, "Friday, 20-Nov-26 12:01:00 GMT", at(time.Minute)},
		{budget.AsRetryAfter, "Fri Nov 20 12:01:00 2026", at(time.Minute)},
		{budget.AsRetryAfter, "soon", budget.Until{}},
		{budget.AsRetryAfter, "1795176300", budget.Until{}},
		{budget.AsNumber, "60", budget.Until{}},
		{"", "60", budget.Until{}},
	} {
		if got := parseUntil(test.as, test.text, noon); got != test.want {
			t.Errorf("%q as %s is %v, want %v", test.text, test.as, got, test.want)
		}
	}
}

func TestRateLimitField(t *testing.T) {
	both := func(remaining, reset int64) rateLimit {
		return rateLimit{remaining: remaining, hasRemaining: true, reset: reset, hasReset: true}
	}
	for _, test := range []struct {
		lines  []string
		policy string
		want   rateLimit
		ok     bool
	}{
		{[]string{`"day";r=100;t=36000`}, "", both(100, 36000), true},
		{[]string{`"day";r=100;t=36000`}, "day", both(100, 36000), true},
		{[]string{`"day";r=100;t=36000`}, "burst", rateLimit{}, false},
		{[]string{`day;r=100;t=36000`}, "day", both(100, 36000), true},
		{[]string{`"burst";r=3;t=5, "day";r=100;t=36000`}, "", both(3, 5), true},
		{[]string{`"burst";r=3;t=5, "day";r=100;t=36000`}, "day", both(100, 36000), true},
		{[]string{`"burst";r=3;t=5`, `"day";r=100;t=36000`}, "day", both(100, 36000), true},
		{[]string{`"day";t=5`}, "day", rateLimit{reset: 5, hasReset: true}, true},
		{[]string{`"day";r=5`}, "day", rateLimit{remaining: 5, hasRemaining: true}, true},
		{[]string{`"day";r=5.5;t="7"`}, "day", rateLimit{}, true},
		{[]string{`"day";r=5;r=6`}, "day", rateLimit{remaining: 6, hasRemaining: true}, true},
		{[]string{`"day";r=1;t=2;pk=:c29tZQ==:`}, "day", both(1, 2), true},
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
		{[]string{``}, "", rateLimit{}, false},
		{nil, "", rateLimit{}, false},
	} {
		if got, ok := readRateLimit(test.lines, test.policy); got != test.want || ok != test.ok {
			t.Errorf("policy %q of %q is %+v, %t; want %+v, %t", test.policy, test.lines, got, ok, test.want, test.ok)
		}
	}
}

// encodingsRead are all that a header's value may have.
var encodingsRead = []budget.Encoding{
	budget.AsNumber, budget.AsEpoch, budget.AsEpochMilli, budget.AsSeconds, budget.AsMinutes, budget.AsDuration,
	budget.AsRFC3339, budget.AsHTTPDate, budget.AsRetryAfter, budget.AsRateLimit,
}

// wholeNumber is what a number may look like, by definition.
var wholeNumber = regexp.MustCompile(`^[ \t]*([+-]?[0-9]+)(\.0+)?[ \t]*$`)

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
		source := &budget.Source{Header: "X-Value", As: encodingsRead[int(as)%len(encodingsRead)], Item: item}
		header := http.Header{"X-Value": {one}}
		if two != "" {
			header.Add("x-value", two)
		}
		seen := newContent(header, nil)
		until := seen.until(source, noon)
		after := until.After
		if !until.At.IsZero() {
			after = until.At.Sub(noon)
		}
		if !until.IsZero() && (after <= 0 || after > farthest || until.At.IsZero() == (until.After == 0)) {
			t.Fatalf("%q as %s is %+v, want an instant or a span up to %s", header, source.As, until, farthest)
		}
		n, ok := seen.number(source)
		if item == "" && two == "" && source.As == budget.AsNumber {
			want, isNumber := new(big.Int), false
			if parts := wholeNumber.FindStringSubmatch(one); parts != nil && len(strings.Trim(one, " \t")) <= mostDigits {
				_, isNumber = want.SetString(parts[1], 10)
				isNumber = isNumber && want.IsInt64()
			}
			if ok != isNumber || ok && n != want.Int64() {
				t.Fatalf("%q is %d, %t; want %s, %t", one, n, ok, want, isNumber)
			}
		}
		if two == "" || item == "" && one == two { // else two lines are the same as one
			return
		}
		joined := newContent(http.Header{"X-Value": {one + ", " + two}}, nil)
		if again := joined.until(source, noon); source.Item != "" && again != until {
			t.Fatalf("%q as %s: in one line %+v, in two %+v", header, source.As, again, until)
		}
		if m, isToo := joined.number(source); isToo != ok || m != n {
			t.Fatalf("%q as %s: in one line %d, %t, in two %d, %t", header, source.As, m, isToo, n, ok)
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
		got, ok := readRateLimit(lines, policy)
		if !ok && got != (rateLimit{}) {
			t.Fatalf("%q says nothing, and %+v", lines, got)
		}
		list, err := httpsfv.UnmarshalList(lines)
		if err != nil {
			if ok {
				t.Fatalf("%q is malformed, and says %+v", lines, got)
			}
			return
		}
		text, err := httpsfv.Marshal(list)
		if err != nil {
			return // what the library reads and does not write
		}
		if again, isToo := readRateLimit([]string{text}, policy); again != got || isToo != ok {
			t.Fatalf("%q says %+v, %t; written anew, %q, it says %+v, %t", lines, got, ok, text, again, isToo)
		}
		named := slices.ContainsFunc(list, func(m httpsfv.Member) bool {
			name, _, isPolicy := ratePolicy(m)
			return isPolicy && (policy == "" || name == policy)
		})
		if ok && !named {
			t.Fatalf("%q has no policy %q, and says %+v", lines, policy, got)
		}
	})
}
