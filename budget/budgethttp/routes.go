package budgethttp

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/quotactl/quotactl/budget"
)

// Routes find what a request is by patterns as in costs.toml: the most specific pattern that
// matches decides. Make them with [NewRoutes]. Once all patterns are added, they are safe for
// concurrent use.
type Routes struct {
	mux        *http.ServeMux
	operations map[string]string // by pattern, as the mux has it
	below      map[string]bool   // the hosts whose pattern begins with "*."
}

// NewRoutes returns Routes without patterns.
func NewRoutes() *Routes {
	return &Routes{mux: http.NewServeMux(), operations: map[string]string{}, below: map[string]bool{}}
}

// newRoutes registers all patterns. The error is about a pattern that the mux refuses, or
// that conflicts with another.
func newRoutes(costs map[string]budget.Cost) (*Routes, error) {
	r := NewRoutes()
	for _, operation := range slices.Sorted(maps.Keys(costs)) {
		for _, pattern := range costs[operation].Match {
			if _, err := r.Add(pattern, operation); err != nil {
				return nil, fmt.Errorf("operation %s: match %q: %w", operation, pattern, err)
			}
		}
	}
	return r, nil
}

// Add registers a pattern. Requests of the pattern are the operation, which may be any text.
// It returns the pattern's host, which may begin with "*.". The error says why the pattern is
// invalid, or with which other one it conflicts.
func (r *Routes) Add(pattern, operation string) (host string, err error) {
	defer func() { // the mux panics if it refuses
		if p := recover(); p != nil {
			err = fmt.Errorf("%v; narrow it, or mend it", p)
		}
	}()
	known, host := muxPattern(pattern)
	parent, isBelow := strings.CutPrefix(host, "*.")
	switch {
	case host == "":
		return host, errors.New("it names no host, so that requests to any host would be charged")
	case parent == "" || strings.Contains(parent, "*"):
		return host, errors.New("a host may begin with \"*.\", and has no other wildcard")
	}
	r.mux.Handle(known, http.NotFoundHandler())
	r.operations[known] = operation
	if isBelow {
		r.below[parent] = true
	}
	return host, nil
}

// muxPattern is a pattern with its host as HostName writes it, and that host.
func muxPattern(pattern string) (known, host string) {
	before, path, hasPath := strings.Cut(pattern, "/")
	method := ""
	if i := strings.LastIndexAny(before, " \t"); i >= 0 {
		method, before = before[:i+1], before[i+1:]
	}
	host = HostName(before)
	if !hasPath {
		return method + host, host // the mux refuses it
	}
	return method + host + "/" + path, host
}

// HostName is a host as names are compared: without a port and the root's dot, in small letters.
func HostName(host string) string {
	return strings.TrimSuffix(strings.ToLower((&url.URL{Host: host}).Hostname()), ".")
}

// Operation returns the operation of the most specific pattern that matches the request; false
// if none does. It does not change the request.
func (r *Routes) Operation(req *http.Request) (string, bool) {
	if req.URL == nil || len(r.operations) == 0 {
		return "", false
	}
	seen := shadow(req)
	host := seen.Host
	if operation, ok := r.operationAt(seen); ok || len(r.below) == 0 {
		return operation, ok
	}
	for {
		_, parent, hasParent := strings.Cut(host, ".")
		if !hasParent {
			return "", false
		}
		if r.below[parent] {
			seen.Host = "*." + parent
			if operation, ok := r.operationAt(seen); ok {
				return operation, true
			}
		}
		host = parent
	}
}

// operationAt asks the mux. A path that the mux would redirect has the pattern of the
// redirect's target.
func (r *Routes) operationAt(seen *http.Request) (string, bool) {
	_, pattern := r.mux.Handler(seen)
	operation, ok := r.operations[pattern]
	return operation, ok
}

// shadow is a client's request as a server would see it.
func shadow(req *http.Request) *http.Request {
	method, host, path := req.Method, req.Host, req.URL
	if method == "" {
		method = http.MethodGet
	}
	if host == "" {
		host = req.URL.Host
	}
	if req.URL.Opaque != "" { // "//host/path", or the path in the request line
		if opaque, err := url.Parse(req.URL.Opaque); err == nil {
			path = opaque
		}
	}
	return &http.Request{
		Method: method, Host: HostName(host),
		URL: &url.URL{Path: path.Path, RawPath: path.RawPath},
	}
}
