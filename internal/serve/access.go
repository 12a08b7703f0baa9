package serve

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"strings"
)

// access says who may ask.
type access struct {
	token    *[sha256.Size]byte // nil: none is needed
	loopback bool
}

func newAccess(o Options) access {
	a := access{loopback: o.Loopback}
	if o.Token != "" {
		sum := sha256.Sum256([]byte(o.Token))
		a.token = &sum
	}
	return a
}

// fromPage says why a request is refused that a web page in somebody's browser had
// sent, or "". Browsers put an Origin on those that a page's program makes, but for
// some GETs; and Sec-Fetch-Site on all, those of an image or a link too: "none" is a
// person's, and "same-origin" a page's of this very address.
func fromPage(r *http.Request) (detail string) {
	if len(r.Header["Origin"]) > 0 {
		return "the request has an Origin header, so it comes from a web page: web pages are not served"
	}
	switch site := r.Header.Get("Sec-Fetch-Site"); site {
	case "", "none", "same-origin":
		return ""
	default:
		return "the request has Sec-Fetch-Site: " + cut(site, maxShown) + ", so it comes from a web page of another site: web pages are not served"
	}
}

// refuses says why a request is refused: a reason and its detail, or "".
//
// On loopback the danger is a web page in somebody's browser: it can have
// requests sent to this machine, also by a name of its own that leads here. Such
// requests say that they are a page's, or carry that name.
func (a access) refuses(r *http.Request) (reason, detail string) {
	page := fromPage(r)
	switch {
	case page != "":
		return "not_local", page
	case a.loopback && !loopbackName(r.Host):
		return "not_local", "the Host header does not name this machine: use localhost, 127.0.0.1 or [::1]"
	case a.token != nil && !a.authorized(r):
		return "no_token", "send this daemon's token as Authorization: Bearer TOKEN"
	}
	return "", ""
}

// authorized compares sums, which are of one length, in constant time.
func (a access) authorized(r *http.Request) bool {
	sent := r.Header["Authorization"]
	if len(sent) != 1 {
		return false
	}
	scheme, token, _ := strings.Cut(sent[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return false
	}
	sum := sha256.Sum256([]byte(strings.TrimLeft(token, " ")))
	return subtle.ConstantTimeCompare(sum[:], a.token[:]) == 1
}

// loopbackName reports whether a Host names this machine itself.
func loopbackName(host string) bool {
	switch host { // what most clients send
	case "127.0.0.1", "localhost", "[::1]":
		return true
	}
	if name, port, err := net.SplitHostPort(host); err == nil && port != "" {
		host = name
	} else {
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	return IsLoopback(host)
}

// IsLoopback reports whether a host is localhost or a loopback address.
func IsLoopback(host string) bool {
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
