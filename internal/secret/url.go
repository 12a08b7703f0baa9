package secret

import (
	"net/url"
	"regexp"
	"strings"
)

// secretParameter finds the values of a URL's query that may be secret.
var secretParameter = regexp.MustCompile(`(?i)([?&][^=&]*(?:pass|secret|token|key)[^=&]*=)[^&]*`)

// OfURL are what a store's URL holds before the host, by which it may be
// known: the password as it stands there and as it is meant, or a word alone.
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

// RedactURL is a store's URL as it may be shown: without its password, and
// without what a malformed URL might hold of one. It is no URL parser, as a
// password may be what keeps a URL from being parsed. The file of an SQLite
// store stays as it is.
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
	return scheme + "://" + secretParameter.ReplaceAllString(rest, "${1}redacted")
}
