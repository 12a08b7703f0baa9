package serve

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"strconv"
	"strings"
)

// Right is what a token lets its holder do.
type Right int

// The rights, each more than the one before.
const (
	NoRight  Right = iota
	MayLook        // read what there is
	MaySpend       // everything
)

// Tokens are the tokens of a daemon. It keeps only their hashes.
type Tokens struct{ spend, look *[sha256.Size]byte } // nil: there is no such token

// NewTokens takes the token and the read token; either may be empty.
func NewTokens(token, readToken string) Tokens { return Tokens{hashed(token), hashed(readToken)} }

func hashed(token string) *[sha256.Size]byte {
	if token == "" {
		return nil
	}
	sum := sha256.Sum256([]byte(token))
	return &sum
}

// Needed reports whether a token is needed at all.
func (t Tokens) Needed() bool { return t.spend != nil }

// Right is what the sender of a token may do. It compares hashes, which have the same
// length, in constant time.
func (t Tokens) Right(token string) Right {
	sum := sha256.Sum256([]byte(token))
	is := func(known *[sha256.Size]byte) bool {
		return known != nil && subtle.ConstantTimeCompare(sum[:], known[:]) == 1
	}
	switch spend, look := is(t.spend), is(t.look); {
	case spend:
		return MaySpend
	case look:
		return MayLook
	}
	return NoRight
}

// Bearer is what a request may do by its Authorization: Bearer.
func (t Tokens) Bearer(r *http.Request) Right {
	sent := r.Header["Authorization"]
	if len(sent) != 1 {
		return NoRight
	}
	scheme, token, _ := strings.Cut(sent[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return NoRight
	}
	return t.Right(strings.TrimLeft(token, " "))
}

// access decides which requests are allowed in.
type access struct {
	tokens   Tokens
	loopback bool
}

func newAccess(o Options) access {
	return access{tokens: NewTokens(o.Token, o.ReadToken), loopback: o.Loopback}
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

// right is what a request may do; with NoRight, the reason and its detail say why it is
// refused.
//
// On loopback the danger is a web page in a browser of this machine. The page can make
// the browser send requests here, also through a host name of its own that resolves to
// this machine. Headers show that a page sent them, or Host has the foreign name.
func (a access) right(r *http.Request) (may Right, reason, detail string) {
	page := fromPage(r)
	switch {
	case page != "":
		return NoRight, "not_local", page
	case a.loopback && !LoopbackName(r.Host):
		return NoRight, "not_local", WrongHost
	case !a.tokens.Needed():
		return MaySpend, "", ""
	}
	if may = a.tokens.Bearer(r); may == NoRight {
		return NoRight, "no_token", "send this daemon's token as Authorization: Bearer TOKEN"
	}
	return may, "", ""
}

// WrongHost is the detail of a refusal for its Host.
const WrongHost = "the Host header does not name this machine: use localhost, 127.0.0.1 or [::1]"

// LoopbackName reports whether a Host names this machine itself. It must be written as in a
// URL, or the browser that sent it and the daemon could take it for different names.
func LoopbackName(host string) bool {
	switch host { // most clients send one of these
	case "127.0.0.1", "localhost", "[::1]":
		return true
	}
	name, port, err := net.SplitHostPort(host)
	if err != nil { // it has no port
		name, port, err = net.SplitHostPort(host + ":80")
	}
	if err != nil {
		return false
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return false
	}
	isURL := strings.HasPrefix(host, "[") == strings.Contains(name, ":")
	return isURL && IsLoopback(name)
}

// IsLoopback reports whether a host is localhost or a loopback address.
func IsLoopback(host string) bool {
	if strings.ToLower(strings.TrimSuffix(host, ".")) == "localhost" { // EqualFold would take ſ for s
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
