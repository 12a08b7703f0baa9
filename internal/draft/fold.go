package draft

import (
	"net/url"
	"path"
	"regexp"
	"strings"
	"sync"
)

// id is what a part of a path becomes that differs from call to call.
const id = "{id}"

// Fold replaces the parts of an escaped path that look like ids. It goes by each part alone and
// the one before it, never by paths beside: siblings are as often methods as ids. A part that
// holds one of the secrets is folded, whatever it looks like.
func Fold(escaped string, secrets []string) string {
	cleaned := path.Clean("/" + escaped)
	if strings.HasSuffix(escaped, "/") && cleaned != "/" {
		cleaned += "/"
	}
	parts := strings.Split(cleaned, "/")
	before := ""
	for i, part := range parts[1:] {
		folded := id
		if !holds(part, secrets) {
			folded = foldPart(part, before, i == 0)
		}
		parts[i+1], before = folded, part
	}
	return strings.Join(parts, "/")
}

// holds reports whether a part has one of the secrets in it.
func holds(part string, secrets []string) bool {
	decoded, err := url.PathUnescape(part)
	for _, secret := range secrets {
		if err != nil || strings.Contains(decoded, secret) || strings.Contains(part, secret) {
			return true
		}
	}
	return false
}

// lazily compiles a pattern when it is first used.
func lazily(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

var (
	verb     = lazily(`^([^:]*):([a-z]+(?:[A-Z][a-z]+)*)$`) // Google's, after a name or an id
	kind     = lazily(`^(.+)(\.(?:json|xml|csv|txt|html|pdf|png|jpg))$`)
	version  = lazily(`^(?:v\d{1,6}(?:\.\d{1,2})*(?:(?:alpha|beta|rc|p\d{1,2}beta)\d{0,2})?|\d{1,2}(?:\.\d{1,2}){1,2})$`)
	date     = lazily(`^20\d\d-\d\d(?:-\d\d)?$`)
	versions = lazily(`^(?:api|data|rest|version)$`) // a number or date after these is a version
	prefixed = lazily(`^(?:[a-z]{2,6}_)+([A-Za-z0-9]{8,})$`)
	hex      = lazily(`^(?:[0-9a-fA-F]{16,}|[0-9a-f-]*[0-9][0-9a-f-]*)$`)
	code     = lazily(`^[A-Z0-9]*(?:[A-Z][0-9]|[0-9][A-Z])[A-Z0-9]*$`)
	ticket   = lazily(`^[A-Z]{2,10}-\d+$`)
	plain    = lazily(`^\$?[A-Za-z0-9._-]*$`)
	run      = lazily(`[A-Za-z]+`)
	digit    = lazily(`[0-9]`)
	capital  = lazily(`[A-Z]`)
	longRun  = lazily(`[a-z]{25}|[A-Z]{21}`) // no word
)

const (
	shortToken = 10 // letters and digits: from here on they must be words
	mostDigits = 2
)

// foldPart is what becomes of a part; first says that it begins the path.
func foldPart(part, before string, first bool) string {
	switch {
	case part == "":
		return part
	case strings.Contains(part, "%"):
		return id
	}
	if m := verb().FindStringSubmatch(part); m != nil && len(m[2]) <= 32 {
		if m[1] == "" {
			return part
		}
		return foldPart(m[1], before, first) + ":" + m[2]
	}
	if m := kind().FindStringSubmatch(part); m != nil {
		return foldPart(m[1], before, first) + m[2]
	}
	afterVersions := versions().MatchString(strings.ToLower(before))
	switch digits := strings.Trim(part, "0123456789"); {
	case version().MatchString(part), date().MatchString(part) && (first || afterVersions):
		return part
	case digits == "":
		if afterVersions && len(part) <= 2 {
			return part
		}
		return id
	case !plain().MatchString(part), len(part) >= 8 && code().MatchString(part), ticket().MatchString(part), len(part) >= 7 && hex().MatchString(part):
		return id
	}
	if m := prefixed().FindStringSubmatch(part); m != nil && strings.ToLower(m[1]) != m[1] {
		return id
	}
	if !isWords(part) {
		return id
	}
	return part
}

// isWords reports whether a part is made of words, with few digits: not long without a sign between,
// and few of the letters of mixed words are capitals.
func isWords(part string) bool {
	for _, token := range strings.FieldsFunc(part, func(r rune) bool { return strings.ContainsRune("._-$", r) }) {
		for _, letters := range run().FindAllString(token, -1) {
			capitals := len(capital().FindAllString(letters, -1))
			if len(token) >= shortToken && capitals < len(letters) && 3*capitals > len(letters) || longRun().MatchString(letters) {
				return false
			}
		}
	}
	return len(digit().FindAllString(part, -1)) <= mostDigits
}
