package main

import (
	"regexp"
	"strings"
)

// secretParameter finds the values of a URL's query that may be secret.
var secretParameter = regexp.MustCompile(`(?i)([?&][^=&]*(?:pass|secret|token|key)[^=&]*=)[^&]*`)

// redact is a store's URL as it may be shown: without its password, and
// without what a malformed URL might hold of one. It is no URL parser, as a
// password may be what keeps a URL from being parsed. The file of an SQLite
// store stays as it is.
func redact(storeURL string) string {
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
