package budgethttp

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// ChargedHeader is in requests that a Transport has charged in a program that quotactl meter
// runs, so that the meter, which takes it off, does not charge them again. Its value is made
// by [Proof].
const ChargedHeader = "X-Quotactl-Charged"

// outer is the quotactl meter that runs this program; the zero value is none.
type outer struct {
	token string   // the password of its proxy
	hosts []string // that it opens, and takes the proof off; some begin with "*."
}

func outerMeter(env func(string) (string, bool)) (o outer) {
	at, _ := env("QUOTACTL_METER")
	address, _ := env("HTTPS_PROXY")
	proxy, err := url.Parse(address)
	if at == "" || err != nil || proxy.Host != at {
		return o
	}
	hosts, _ := env("QUOTACTL_METER_HOSTS")
	o.token, _ = proxy.User.Password()
	o.hosts = strings.Split(hosts, ",")
	return o
}

// Covers reports whether a host is one of hosts, or below one that begins with "*.".
func Covers(hosts []string, host string) bool {
	return slices.ContainsFunc(hosts, func(name string) bool {
		below, isBelow := strings.CutPrefix(name, "*")
		return host == name || isBelow && len(host) > len(below) && strings.HasSuffix(host, below)
	})
}

// Proof is the value of [ChargedHeader] for a request that is charged to a budget: the budget, its
// store as [budget.Spec] has it, the operation, the charge's id, and a code that only those who know
// the proxy's token can make. None of them has a space.
func Proof(token, budget, store, operation, id string, req *http.Request) string {
	said := budget + " " + cmp.Or(store, "-") + " " + operation + " " + id
	seen := shadow(req)
	key := sha256.Sum256([]byte("quotactl charged " + token))
	code := hmac.New(sha256.New, key[:])
	_, _ = code.Write([]byte(said + " " + seen.Method + " " + seen.Host + " " + seen.URL.EscapedPath())) // it never fails
	return said + " " + hex.EncodeToString(code.Sum(nil))
}

// proven is the request with a proof of its charge, if a meter runs this program and the base
// asks proxies.
func (a *attempt) proven(out *http.Request) *http.Request {
	base, usual := a.options.Base.(*http.Transport)
	if a.outer.token == "" || usual && base.Proxy == nil || !Covers(a.outer.hosts, shadow(out).Host) {
		return out
	}
	out.Header = out.Header.Clone()
	if out.Header == nil {
		out.Header = http.Header{}
	}
	out.Header.Set(ChargedHeader, Proof(a.outer.token, a.budget.Name(), a.spec.Store, a.operation, a.newest().ID, a.request))
	return out
}
