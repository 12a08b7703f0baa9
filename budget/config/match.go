package config

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/quotactl/quotactl/budget/feedback"
)

// matcher collects what the upstreams of a file own. It registers the patterns of all their
// operations as package budgethttp will those of one upstream, so that errors in them show when
// the file is loaded.
type matcher struct {
	mux      *http.ServeMux
	upstream string // whose patterns are read
	taken    []ownedRoute
	places   claims // hosts and base_url
}

// ownedRoute is a pattern with the upstream that has it.
type ownedRoute struct {
	feedback.Route
	upstream string
}

func newMatcher() *matcher { return &matcher{mux: http.NewServeMux(), places: claims{}} }

// read reads an operation's match.
func (m *matcher) read(node Node, operation string) []string {
	patterns, _ := node.SomeTexts()
	for _, pattern := range patterns {
		fault := checkPattern(pattern)
		if fault == "" {
			fault = m.add(ownedRoute{feedback.Route{Pattern: pattern, Operation: operation}, m.upstream})
		}
		if fault != "" {
			node.Fail("match%s: %s", showPattern(pattern), fault)
		}
	}
	return patterns
}

// add registers a pattern and returns what it conflicts with; empty if nothing.
func (m *matcher) add(route ownedRoute) string {
	if register(m.mux, route.Pattern) == "" {
		m.taken = append(m.taken, route)
		return ""
	}
	for _, other := range m.taken {
		owner := fmt.Sprintf("operation %q", other.Operation)
		if other.upstream != route.upstream {
			owner += " of upstream " + other.upstream
		}
		if other.Pattern == route.Pattern {
			return owner + " has it already; keep one"
		}
		pair := http.NewServeMux()
		if register(pair, other.Pattern) == "" && register(pair, route.Pattern) != "" {
			return fmt.Sprintf("some requests also match %q of %s, and neither pattern is more specific; narrow one of them, or take it out", other.Pattern, owner)
		}
	}
	return "it conflicts with the patterns before it; narrow it, or take it out"
}

// register registers a pattern and returns why the mux refuses it; empty if it does not.
func register(mux *http.ServeMux, pattern string) (refused string) {
	defer func() {
		if p := recover(); p != nil {
			refused = fmt.Sprint(p)
			if _, reason, cut := strings.Cut(refused, `: at offset `); cut {
				_, refused, _ = strings.Cut(reason, ": ")
			}
		}
	}()
	mux.Handle(pattern, http.NotFoundHandler())
	return ""
}

// checkPattern finds errors that the mux accepts: a pattern that no request matches, or
// one that requests to other hosts match.
func checkPattern(pattern string) string {
	method, rest, cut := strings.Cut(strings.ReplaceAll(pattern, "\t", " "), " ")
	if !cut {
		method, rest = "", pattern
	}
	host, _, _ := strings.Cut(strings.TrimLeft(rest, " "), "/")
	afterAddress := host[strings.LastIndexByte(host, ']')+1:] // "[::1]" is one
	switch {
	case strings.Contains(pattern, "://"):
		return "it names a scheme: begin it with the host, such as \"www.example.com/v1/\""
	case strings.Contains(host, "@"):
		return "it contains a user: take it out; the secret is named in [upstream.NAME.credential.LABEL]"
	case strings.ContainsAny(pattern, "?#"):
		return "it contains a query: only method, host and path are compared; take it out"
	case host == "":
		return "it names no host, so that requests to any host would be charged; write \"www.example.com/v1/\""
	case host == "*." || strings.ContainsAny(strings.TrimPrefix(host, "*."), "{*"):
		return "its host has a wildcard: a host may begin with \"*.\", for any host below it, but has no other wildcard; name each host"
	case method != strings.ToUpper(method):
		return "its method is in small letters and matches no request; write it in capitals"
	case host != strings.ToLower(host):
		return "its host is in capitals; write it in small letters"
	case strings.Count(afterAddress, ":") == 1:
		return "its host has a port: ports are not compared; take it out"
	}
	// The mux refuses a path that no request has only if the pattern has a method.
	alone := pattern
	if method == "" {
		alone = "GET " + pattern
	}
	if reason := register(http.NewServeMux(), alone); reason != "" {
		return fmt.Sprintf("it is not a pattern: %s; write \"GET www.example.com/v1/items/{id}\", where method and wildcards may be left out", reason)
	}
	return ""
}

// showPattern is a pattern as a message may show it. It does not show a whole address,
// which may contain a secret.
func showPattern(pattern string) string {
	if strings.ContainsAny(pattern, "?#@") || strings.Contains(pattern, "://") {
		return ""
	}
	return fmt.Sprintf(" = %q", pattern)
}
