package gateway

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/secret"
)

// standIns are the secrets of upstreams, by name, that a command does not have. It has texts that
// stand for them. Such a text is put back into the secret only in a request to its own upstream,
// where the upstream's secret says, and over TLS, which the gateway always verifies. Everywhere
// else it is the text that it is.
type standIns map[string]*keptSecrets

// keptSecrets are those of one upstream; nil: there are none.
type keptSecrets struct {
	place   config.Secret
	pairs   []standIn
	back    *strings.Replacer        // puts stand-ins back where a server repeats secrets
	redacts func(text string) string // removes secrets that are written in other ways
}

type standIn struct{ text, secret string }

// newStandIns finds the secrets that are kept. The credentials know them by their stand-ins, too.
func newStandIns(o Options, known *credentials) standIns {
	all := standIns{}
	for _, u := range o.Config.Upstreams {
		k := &keptSecrets{place: u.Secret}
		var pairs, secrets []string
		for _, credential := range u.Credentials {
			value := strings.TrimSpace(o.Secret(credential))
			text := o.StandIns[value]
			if text == "" || u.Secret == (config.Secret{}) {
				continue
			}
			known.know(u.Name+"/"+credential.Label, text)
			k.pairs, secrets = append(k.pairs, standIn{text, value}), append(secrets, value)
			pairs = append(pairs, value, text, url.QueryEscape(value), text, url.PathEscape(value), text)
		}
		if len(k.pairs) > 0 {
			k.back, k.redacts = strings.NewReplacer(pairs...), secret.Hider("", secrets...)
			all[u.Name] = k
		}
	}
	return all
}

// keptOf are the kept secrets of the upstream to which a call belongs.
func (g *Gateway) keptOf(c *call) *keptSecrets {
	if c.upstream == nil {
		return nil
	}
	return g.standIns[c.upstream.Name]
}

// isMisplaced answers a request that carries a stand-in where it gets no secret, as far as that
// can be seen.
func (h *handler) isMisplaced(w http.ResponseWriter, c *call, req *http.Request) bool {
	k := h.keptOf(c)
	if k == nil {
		return false
	}
	left := carriedBy(k.putInto(c, req)).values
	if !slices.ContainsFunc(k.pairs, func(one standIn) bool {
		return slices.ContainsFunc(left, func(value string) bool { return strings.Contains(value, one.text) })
	}) {
		return false
	}
	h.refuseWith(w, req, h.misconfigured(fmt.Sprintf("the secret of [upstream.%s] is sent over https alone, and as its secret says, in %s: the request carries its stand-in in another way", c.upstream.Name, cmp.Or(k.place.Query, k.place.Header))))
	return true
}

// putInto is a request with secrets for stand-ins.
func (k *keptSecrets) putInto(c *call, req *http.Request) *http.Request {
	if k == nil || c.scheme != "https" {
		return req
	}
	req = req.Clone(req.Context())
	values := req.Header[http.CanonicalHeaderKey(k.place.Header)]
	for _, one := range k.pairs {
		req.URL.RawQuery = one.inQuery(req.URL.RawQuery, k.place.Query)
		for i, value := range values {
			values[i] = one.inHeader(value)
		}
	}
	return req
}

// inQuery is a query with the secret for the stand-in; the rest stays as it is written.
func (s standIn) inQuery(raw, name string) string {
	parts := strings.Split(raw, "&")
	for i, part := range parts {
		key, value, _ := strings.Cut(part, "=")
		if is, err := url.QueryUnescape(key); err != nil || is != name || name == "" {
			continue
		}
		if is, err := url.QueryUnescape(value); err == nil && is == s.text {
			parts[i] = key + "=" + url.QueryEscape(s.secret)
		}
	}
	return strings.Join(parts, "&")
}

// inHeader is the value of a header with the secret for the stand-in, which may follow a scheme
// or be a half of Basic.
func (s standIn) inHeader(value string) string {
	if before, isLast := strings.CutSuffix(value, s.text); isLast {
		return before + s.secret
	}
	scheme, rest, _ := strings.Cut(value, " ")
	text, err := base64.StdEncoding.DecodeString(strings.TrimSpace(rest))
	if err != nil || !strings.EqualFold(scheme, "Basic") {
		return value
	}
	halves := strings.SplitN(string(text), ":", 2)
	for i, half := range halves {
		if half == s.text {
			halves[i] = s.secret
		}
	}
	if put := strings.Join(halves, ":"); put != string(text) {
		return scheme + " " + base64.StdEncoding.EncodeToString([]byte(put))
	}
	return value
}

// hide removes secrets from a text.
func (k *keptSecrets) hide(text string) string {
	if k == nil {
		return text
	}
	return k.redacts(k.back.Replace(text))
}

// mask removes secrets from the values of headers.
func (k *keptSecrets) mask(header http.Header) {
	for _, values := range header {
		for i, value := range values {
			values[i] = k.hide(value)
		}
	}
}

// maskAnswer removes secrets from an answer, but for its body.
func (k *keptSecrets) maskAnswer(resp *http.Response) {
	if k.mask(resp.Header); k != nil && resp.StatusCode != http.StatusSwitchingProtocols {
		resp.Body = &untilTrailer{resp.Body, func() { k.mask(resp.Trailer) }}
	}
}

// untilTrailer is a body. It calls then once the trailer is there.
type untilTrailer struct {
	io.ReadCloser
	then func()
}

// Read implements io.Reader.
func (u *untilTrailer) Read(b []byte) (int, error) {
	n, err := u.ReadCloser.Read(b)
	if err != nil {
		u.then()
	}
	return n, err
}
