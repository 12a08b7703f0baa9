package secret

import (
	"net/url"
	"regexp"
	"strings"
	"sync"
)

// secretParameter finds the values of a URL's query that may be secret.
var secretParameter = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)([?&][^=&]*(?:pass|secret|token|key)[^=&]*=)[^&]*`)
})

// OfURL returns the parts of a store's URL before the host that may be secret: the
// password as written and as unescaped, or, without a colon, the single word.
func OfURL(storeURL string) []string {
	_, rest, _ := strings.Cut(storeURL, "://")
	at := strings.LastIndex(rest, "@")
	if at < 0 {
		return nil
	}
	written := rest[:at]
	if _, password, ok := strings.Cut(written, ":"); ok {
		written = password
	}
	if meant, err := url.PathUnescape(written); err == nil && meant != written {
		return []string{written, meant}
	}
	return []string{written}
}

// RedactURL is a store's URL without its password, and without what may be a password in
// a malformed URL. It does not parse the URL, since a password may be what makes it
// unparsable. The path of a SQLite file stays unchanged.
func RedactURL(storeURL string) string {
	scheme, rest, ok := strings.Cut(storeURL, "://")
	if strings.HasPrefix(storeURL, "sqlite:") {
		return storeURL
	}
	if !ok {
		return "(unreadable)"
	}
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		user, _, hasPassword := strings.Cut(rest[:at], ":")
		if !hasPassword {
			user = ""
		}
		rest = user + ":redacted" + rest[at:]
	}
	return scheme + "://" + secretParameter().ReplaceAllString(rest, "${1}redacted")
}
