package budgethttp

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/must"
)

func TestRoutes(t *testing.T) {
	r := must.Get(newRoutes(map[string]budget.Cost{
		"any":     {Match: []string{"api.example.com/"}},
		"search":  {Match: []string{"GET api.example.com/v3/search", "POST api.example.com/v3/search/{$}"}},
		"item":    {Match: []string{"api.example.com/v3/items/{id}"}},
		"best":    {Match: []string{"api.example.com/v3/items/best"}},
		"tree":    {Match: []string{"PUT api.example.com/v3/tree/"}},
		"capital": {Match: []string{"GET API.Example.ORG/Path"}},
		"six":     {Match: []string{"GET\t[::1]/v1/"}},
		"tunnel":  {Match: []string{"localhost/{path...}"}},
		"unused":  {Units: 1},
	}))(t)
	for _, test := range []struct{ method, url, host, want string }{
		{"GET", "https://api.example.com/v3/search?q=x", "", "search"},
		{"", "https://api.example.com/v3/search", "", "search"},
		{"HEAD", "https://api.example.com/v3/search", "", "search"},
		{"POST", "https://api.example.com/v3/search", "", "search"}, // by way of /v3/search/
		{"DELETE", "https://api.example.com/v3/search", "", "any"},
		{"GET", "https://api.example.com/v3/search/", "", "any"},
		{"GET", "https://API.example.COM:8443/v3/search", "", "search"},
		{"GET", "https://api.example.com.:8443/v3/search", "", "search"},
		{"GET", "http://127.0.0.1:4711/v3/search", "api.example.com", "search"},
		{"GET", "http://127.0.0.1:4711/v3/search", "api.example.com:443", "search"},
		{"GET", "http://api.example.com/v3/search", "other.example.com", ""},
		{"GET", "http://api.example.com//v3/./search", "", "search"},
		{"GET", "http://api.example.com/v3/x/../search", "", "search"},
		{"GET", "http://api.example.com/v3/items/7", "", "item"},
		{"GET", "http://api.example.com/v3/items/a%2Fb", "", "item"},
		{"GET", "http://api.example.com/v3/items/a/b", "", "any"},
		{"GET", "http://api.example.com/v3/items/best", "", "best"},
		{"PUT", "http://api.example.com/v3/tree", "", "tree"},
		{"PUT", "http://api.example.com/v3/tree/branch/leaf", "", "tree"},
		{"GET", "http://api.example.com/v3/tree/branch", "", "any"},
		{"GET", "http://api.example.com", "", "any"},
		{"OPTIONS", "http://api.example.com/*", "", "any"},
		{"GET", "http://api.example.org/Path", "", "capital"},
		{"GET", "http://api.example.org/path", "", ""},
		{"get", "http://api.example.org/Path", "", ""},
		{"GET", "http://[::1]:8080/v1/x", "", "six"},
		{"GET", "http://[::1]/v1/x", "", "six"},
		{"GET", "http://localhost:9/", "", "tunnel"},
		{"GET", "http://example.com/", "", ""},
		{"GET", "http://", "", ""},
	} {
		address := must.Get(url.Parse(test.url))(t)
		req := &http.Request{Method: test.method, URL: address, Host: test.host}
		if got, ok := r.Operation(req); got != test.want || ok != (test.want != "") {
			t.Errorf("%s %s of host %q is %q, %t; want %q", test.method, test.url, test.host, got, ok, test.want)
		}
	}
	for opaque, want := range map[string]string{
		"//api.example.com/v3/search": "search", "/v3/items/a%2fb": "item", "//api.example.com": "any",
	} {
		req := &http.Request{Method: "GET", URL: &url.URL{Scheme: "http", Host: "api.example.com", Opaque: opaque}}
		if got, _ := r.Operation(req); got != want {
			t.Errorf("opaque %s is %q, want %q", opaque, got, want)
		}
	}
	if got, ok := r.Operation(&http.Request{}); ok {
		t.Errorf("a request without an address is %q", got)
	}
}

// Looking at a request does not change it.
func TestRoutesLeaveTheRequest(t *testing.T) {
	r := must.Get(newRoutes(map[string]budget.Cost{"a": {Match: []string{"GET example.com/a/"}}}))(t)
	make := func() *http.Request {
		req := httptest.NewRequest("", "http://EXAMPLE.com:80/x/../a?b=c#d", strings.NewReader("body"))
		req.Method, req.Host = "", ""
		return req
	}
	req, want := make(), make()
	if got, _ := r.Operation(req); got != "a" {
		t.Fatalf("operation %q, want a", got)
	}
	if !reflect.DeepEqual(req, want) {
		t.Errorf("the request is\n%+v, want\n%+v", req, want)
	}
}

// Of hosts an exact one comes first, then the longest of those it is below.
func TestRoutesBelowAHost(t *testing.T) {
	r := must.Get(newRoutes(map[string]budget.Cost{
		"shops": {Match: []string{"POST *.Example.com/admin/{version}/graphql.json"}},
		"deep":  {Match: []string{"*.eu.example.com/admin/"}},
		"own":   {Match: []string{"POST own.example.com/admin/2026/graphql.json"}},
	}))(t)
	for _, test := range []struct{ url, want string }{
		{"https://shop.example.com/admin/2026/graphql.json", "shops"},
		{"https://SHOP.example.com:8443/admin/2026/graphql.json", "shops"},
		{"https://a.b.example.com/admin/2026/graphql.json", "shops"},
		{"https://a.eu.example.com/admin/2026/graphql.json", "deep"},
		{"https://eu.example.com/admin/2026/graphql.json", "shops"},
		{"https://own.example.com/admin/2026/graphql.json", "own"},
		{"https://own.example.com/admin/2025/graphql.json", "shops"},
		{"https://a.eu.example.com/other", ""},
		{"https://example.com/admin/2026/graphql.json", ""},
		{"https://example.com.evil.test/admin/2026/graphql.json", ""},
		{"https://evilexample.com/admin/2026/graphql.json", ""},
		{"https://localhost/admin/2026/graphql.json", ""},
		{"https://*.example.com/admin/2026/graphql.json", "shops"},
	} {
		req := httptest.NewRequest(http.MethodPost, test.url, nil)
		if got, _ := r.Operation(req); got != test.want {
			t.Errorf("%s is %q, want %q", test.url, got, test.want)
		}
	}
}

func TestRoutesThatConflict(t *testing.T) {
	for _, costs := range []map[string]budget.Cost{
		{"a": {Match: []string{"GET example.com/{x}/b"}}, "b": {Match: []string{"GET example.com/a/{y}"}}},
		{"a": {Match: []string{"example.com/a"}}, "b": {Match: []string{"EXAMPLE.com/a"}}},
		{"b": {Match: []string{"example.com/{"}}},
		{"b": {Match: []string{""}}},
		{"b": {Match: []string{"example.com"}}},
		{"b": {Match: []string{"/a"}}},
		{"b": {Match: []string{"GET /a"}}},
		{"b": {Match: []string{"GET :80/a"}}},
		{"b": {Match: []string{"*./a"}}},
		{"b": {Match: []string{"*/a"}}},
		{"b": {Match: []string{"*.*.example.com/a"}}},
		{"b": {Match: []string{"a*.example.com/a"}}},
		{"a": {Match: []string{"*.example.com/{x}"}}, "b": {Match: []string{"*.example.com/{y}"}}},
	} {
		if _, err := newRoutes(costs); err == nil || !strings.Contains(err.Error(), "operation b: match") {
			t.Errorf("%v: error %v, want one at operation b", costs, err)
		}
	}
}
