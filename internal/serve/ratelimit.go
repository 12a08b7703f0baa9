package serve

import (
	"cmp"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/answer"
)

// The RateLimit and RateLimit-Policy fields of draft-ietf-httpapi-ratelimit-headers are
// structured fields (RFC 9651): lists of items, each named after a limit. Answers to
// charges have them, so that a service can pass them on to its own visitors. Quotas are
// in what the limit counts; the draft has no name for units.

// maxField is the largest integer that a structured field can have.
const maxField int64 = 999_999_999_999_999

// The fields' names in the spelling of net/http.
const (
	fieldRateLimit = "Ratelimit"
	fieldPolicy    = "Ratelimit-Policy"
)

// setRateLimit sets the fields of an answer: RateLimit only if a limit or a lock decided
// it.
func setRateLimit(header http.Header, policies *policies, a *answer.Charge) {
	if field := policies.field(a.Operation, a.At); field != nil {
		header[fieldPolicy] = field
	}
	switch {
	case a.Reason == "locked", a.Reason == "recovering": // 0, even if the limit has units left
		header[fieldRateLimit] = []string{rateLimit(cmp.Or(a.Limit, driver.ObservedLock), 0, a)}
	case a.Limit != "" && a.Remaining != nil:
		header[fieldRateLimit] = []string{rateLimit(a.Limit, *a.Remaining, a)}
	}
}

// rateLimit formats the limit that decided and what it has left; after a refusal also the
// seconds until the same call fits. A limit's name needs no escaping.
func rateLimit(limit string, remaining int64, a *answer.Charge) string {
	var space [96]byte
	b := append(space[:0], '"')
	b = append(b, limit...)
	b = strconv.AppendInt(append(b, `";r=`...), min(remaining, maxField), 10)
	if !a.RetryAt.IsZero() {
		b = strconv.AppendInt(append(b, ";t="...), wholeSeconds(a.RetryAfter), 10)
	}
	return string(b)
}

// policies caches the RateLimit-Policy fields of a budget's operations.
type policies struct {
	spec   *budget.Spec
	limits func(operation string) []limit.Limit // that cover it
	known  sync.Map                             // of policy by priced operation
}

// policy is a field and the instant until which it is valid; zero: always.
type policy struct {
	field []string // nil: no limit covers the operation
	until time.Time
}

// field returns the field of an operation at an instant; nil when no limit covers it.
func (p *policies) field(operation string, at time.Time) []string {
	if at.IsZero() {
		at = time.Now()
	}
	if seen, ok := p.known.Load(operation); ok {
		if seen := seen.(policy); seen.until.IsZero() || at.Before(seen.until) {
			return seen.field
		}
	}
	made, err := makePolicy(p.limits(operation), at)
	if err != nil { // a structured field cannot hold a name or number
		return nil
	}
	if _, priced := p.spec.Costs[operation]; priced { // unpriced names are unbounded
		p.known.Store(operation, made)
	}
	return made.field
}

// autoFor is how long a field is valid that has a limit with an automatic headroom.
const autoFor = time.Minute

// makePolicy lists the limits that cover an operation. A calendar's window is the length
// of its period at that instant.
func makePolicy(limits []limit.Limit, at time.Time) (policy, error) {
	var made policy
	var list httpsfv.List
	for _, l := range limits {
		if soon := at.Add(autoFor); l.Auto > 0 && (made.until.IsZero() || soon.Before(made.until)) {
			made.until = soon
		}
		item := httpsfv.NewItem(l.Name)
		item.Params.Add("q", min(l.Limit, maxField))
		switch w := l.Window; w.Kind {
		case limit.Concurrent:
			item.Params.Add("qu", "concurrent-requests")
		case limit.Bucket: // it has no window
		default:
			item.Params.Add("w", wholeSeconds(answer.WindowLength(w, at)))
			if w.Calendar == nil {
				break
			}
			_, next := w.Calendar.Period(at.UnixMicro())
			if end := time.UnixMicro(next); made.until.IsZero() || end.Before(made.until) {
				made.until = end
			}
		}
		list = append(list, item)
	}
	if len(list) == 0 {
		return made, nil
	}
	field, err := httpsfv.Marshal(list)
	if err != nil {
		return policy{}, fmt.Errorf("write RateLimit-Policy: %w", err)
	}
	made.field = []string{field}
	return made, nil
}
