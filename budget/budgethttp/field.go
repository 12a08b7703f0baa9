package budgethttp

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/budget/limit"
)

// errDiffer: a header that has one value is repeated with another one.
var errDiffer = errors.New("it is there several times, with different values")

// elements are the elements of a header's lines. By RFC 9110, section 5.3, several lines
// of a header and one line with all their values are the same, and a proxy may make one of
// the other. Empty elements do not count.
func elements(lines []string) []string {
	var all []string
	for part := range strings.SplitSeq(strings.Join(lines, ","), ",") {
		if part = strings.Trim(part, blanks); part != "" {
			all = append(all, part)
		}
	}
	return all
}

// dates are the elements of a header whose values may be dates, which have a comma after
// the weekday.
func dates(elements []string) (all []string) {
	for _, one := range elements {
		if n := len(all); n > 0 && isWeekday(all[n-1]) {
			all[n-1] += ", " + one
		} else {
			all = append(all, one)
		}
	}
	return all
}

func isWeekday(text string) bool {
	_, short := time.Parse("Mon", text)
	_, long := time.Parse("Monday", text)
	return short == nil || long == nil
}

// single is the value of a header that has one. A proxy may repeat it; values that differ
// are an error.
func single(lines []string, as feedback.Encoding) (string, error) {
	if len(lines) == 1 && as == feedback.AsRFC3339 { // some write the fraction after a comma
		if _, err := timestamp(strings.Trim(lines[0], blanks)); err == nil {
			return lines[0], nil
		}
	}
	all := elements(lines)
	if as == feedback.AsHTTPDate || as == feedback.AsRetryAfter {
		all = dates(all)
	}
	if len(all) == 0 {
		return "", nil
	}
	if slices.ContainsFunc(all[1:], func(other string) bool { return !isSame(all[0], other) }) {
		return "", errDiffer
	}
	return all[0], nil
}

// isSame reports whether two texts are the same value. Texts with leading zeroes are no
// numbers here: "5,005" may be one number.
func isSame(a, b string) bool {
	if a == b {
		return true
	}
	x, isNumber := limit.ParseDecimal(a)
	y, isNumberToo := limit.ParseDecimal(b)
	return isNumber && isNumberToo && json.Valid([]byte(a)) && json.Valid([]byte(b)) && x.Cmp(y) == 0
}

// sayDifferent reports whether the elements are numbers, and not all the same one.
func sayDifferent(all []string) bool {
	isText := func(text string) bool { _, isNumber := limit.ParseDecimal(text); return !isNumber }
	return !slices.ContainsFunc(all, isText) && slices.ContainsFunc(all, func(one string) bool { return !isSame(all[0], one) })
}

// unrepeated is a header's value without the repetitions that a proxy may have added.
func unrepeated(lines []string) string { return strings.Join(slices.Compact(elements(lines)), ",") }

// hasRun reports whether the elements have those of a wanted value in a row, ignoring
// case.
func hasRun(all []string, wanted string) bool {
	run := elements([]string{wanted})
	for i := 0; i+len(run) <= len(all); i++ {
		if slices.EqualFunc(all[i:i+len(run)], run, strings.EqualFold) {
			return len(run) > 0 || len(all) == 0
		}
	}
	return false
}

// cacheMarks are headers in which caches say whether a response comes from them.
var cacheMarks = []string{
	"X-Cache", "CF-Cache-Status", "Cache-Status", "X-Cache-Status", "X-Proxy-Cache", "X-Vercel-Cache", "X-Nginx-Cache",
	"X-FastCGI-Cache", "X-LiteSpeed-Cache", "X-Nextjs-Cache", "X-Drupal-Cache", "X-Drupal-Dynamic-Cache",
}

// isStored reports whether a response says that it comes from a cache, so it says nothing
// about the upstream's current state. Of several caches on the way, one is enough. An Age
// that says different numbers says nothing.
func isStored(header http.Header) bool {
	isPositive := func(text string) bool {
		age, isNumber := limit.ParseDecimal(text)
		return isNumber && age.Sign() > 0
	}
	ages := elements(header.Values("Age"))
	if header.Get("X-From-Cache") != "" || slices.ContainsFunc(ages, isPositive) && !sayDifferent(ages) {
		return true
	}
	return slices.ContainsFunc(cacheMarks, func(name string) bool {
		return slices.ContainsFunc(elements(header.Values(name)), isHit)
	})
}

// isHit reports whether a cache says that it had the response: "HIT", "TCP_MEM_HIT", "Hit
// from cloudfront", "STALE", and by RFC 9211 "name; hit".
func isHit(mark string) bool {
	words := strings.FieldsFunc(strings.ToLower(mark), func(r rune) bool { return strings.ContainsRune(" \t;/", r) })
	if len(words) == 0 {
		return false
	}
	switch words[0] {
	case "stale", "updating", "revalidated", "prerender":
		return true
	}
	said := slices.ContainsFunc(words[1:], func(word string) bool { return word == "hit" || word == "hit=?1" }) // RFC 9651, 3.3.6
	return strings.HasSuffix(words[0], "hit") || strings.Contains(mark, ";") && said
}
