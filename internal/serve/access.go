package serve

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"strings"
)

// access decides which requests are allowed in.
type access struct {
	token    *[sha256.Size]byte // nil: no token is needed
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

// fromPage says why a request from a web page is refused; "" if it is not from one.
// Browsers send Origin with the requests of a page's scripts, except some GETs. They send
// Sec-Fetch-Site with every request, images and links included: "none" means that the
// user made it, "same-origin" that a page of this same address did.
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
// On loopback the danger is a web page in a browser of this machine. The page can make
// the browser send requests here, also through a host name of its own that resolves to
// this machine. Headers show that a page sent them, or Host has the foreign name.
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

// authorized reports whether a request has the token. It compares hashes, which have the
// same length, in constant time.
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
	switch host { // most clients send one of these
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
