package feedback

import "time"

// Rules is what an upstream's responses say about its quota, and where, as costs.toml
// describes it. Package budgethttp applies the rules.
type Rules struct {
	// Free are the statuses of responses that the upstream documents as not
	// counted: their charges are released.
	Free []int
	// Refusals are tried in order; the first that fits a response decides what it
	// means.
	Refusals []Refusal
	// Reports are all read; each is about its own limit.
	Reports []Report
}

// Meaning is what a refusal by the upstream means.
type Meaning string

// The meanings of a refusal.
const (
	// Exhausted: the quota is spent. The budget, or the rule's Limit, is locked.
	Exhausted Meaning = "exhausted"
	// Throttled: too many requests at once. The budget or the Limit is locked too, for
	// the short time that the response or the rule says.
	Throttled Meaning = "throttled"
	// Overloaded: the upstream itself has a problem. Nothing is locked.
	Overloaded Meaning = "overloaded"
)

// Condition selects responses. A response must meet every part that is given.
type Condition struct {
	// Operations are names, "prefix.*" and "!name", as in a limit; empty: all.
	Operations []string
	// Status are the statuses; empty: any.
	Status []int
	// Header maps a header's name to its accepted values, ignoring case;
	// "*" is any value.
	Header map[string][]string
	// JSON maps a path in the body to its accepted values, as strings;
	// "*" is any value but null. A path is names and numbers joined by dots, where "#"
	// is every element of an array.
	JSON map[string][]string
	// Text: the body contains one of these, ignoring case; empty: any body.
	Text []string
}

// Refusal is an [upstream.NAME.refusal.RULE] table.
type Refusal struct {
	Name string
	Condition
	Means Meaning
	// Limit is the limit concerned; with per = "operation", that of the request's
	// operation. Empty: the whole budget.
	Limit string
	// Reset lists the places where the response says when to retry, in the order in
	// which they are tried.
	Reset []Source
	// Free: the upstream documents that it does not count such calls, so they are
	// released.
	Free bool
	// Lock is how long to lock if the response names no reset and none can be computed.
	Lock time.Duration
	// Longest is how long the rule may lock, whatever the response says; 0: as long as the
	// longest window that it locks, at least an hour.
	Longest time.Duration
}

// Report is an [upstream.NAME.report.RULE] table: where responses say what is
// left of a limit. It has Remaining or Used.
type Report struct {
	Name string
	Condition
	Limit     string
	Remaining *Source
	Used      *Source
	// Reset is when the reported use returns; nil: with the limit's own window.
	Reset *Source
}

// Encoding is how a response writes a value.
type Encoding string

// The encodings. An instant or span needs one given; it is never guessed.
const (
	AsNumber       Encoding = "number"       // a whole number, or one with a fraction of zeroes; the default but for resets
	AsEpoch        Encoding = "epoch"        // seconds since 1970, decimals allowed
	AsEpochMilli   Encoding = "epoch-ms"     // milliseconds since 1970
	AsMilliseconds Encoding = "milliseconds" // from now, decimals allowed
	AsSeconds      Encoding = "seconds"      // from now, decimals allowed
	AsMinutes      Encoding = "minutes"      // from now, decimals allowed
	AsDuration     Encoding = "duration"     // from now, as Go writes it: "6m0s"
	AsRFC3339      Encoding = "rfc3339"      // seconds, and the colon in the offset, may be missing
	AsHTTPDate     Encoding = "http-date"    //
	AsRetryAfter   Encoding = "retry-after"  // seconds from now, or an HTTP-date
	// AsRateLimit is the RateLimit field of draft-ietf-httpapi-ratelimit-headers: r for
	// what remains, t for the reset, of the policy named by Item. Without an Item, of the
	// first policy.
	AsRateLimit Encoding = "ratelimit"
)

// Source is the place of a value in a response: in a header or in the body.
type Source struct {
	Header string
	JSON   string // a path, as in Condition
	As     Encoding
	// Item is which value of several separated by commas or slashes, from 1 ("pairs"), or
	// of AsRateLimit the policy's name; empty: all of it.
	Item string
}

// Route says which operation the requests of a pattern of [net/http.ServeMux]
// are: "GET www.googleapis.com/youtube/v3/search".
type Route struct {
	Pattern   string
	Operation string
}

// Key is a value in a request: of a query parameter or of a header.
type Key struct {
	Query  string
	Header string
}
