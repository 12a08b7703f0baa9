package gateway

import (
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

// isMisplaced answers a request whose stand-in gets no secret.
func (h *handler) isMisplaced(w http.ResponseWriter, c *call, req *http.Request) bool {
	why := h.keptOf(c).misplaced(c, req)
	if why != "" {
		h.refuseWith(w, req, h.misconfigured(why))
	}
	return why != ""
}

// misplaced says why a request that carries a stand-in gets no secret; empty: it gets it, or
// carries none where that can be seen.
func (k *keptSecrets) misplaced(c *call, req *http.Request) string {
	if k == nil {
		return ""
	}
	values := carriedBy(req).values
	for _, one := range k.pairs {
		if !slices.ContainsFunc(values, func(value string) bool { return strings.Contains(value, one.text) }) {
			continue
		}
		if c.scheme != "https" {
			return fmt.Sprintf("the request to %s is not encrypted, and the secret that the command's stand-in is for is sent over https alone", c.host)
		}
		if _, found := one.inQuery(req.URL.RawQuery, k.place.Query); found {
			continue
		}
		if !slices.ContainsFunc(req.Header.Values(k.place.Header), func(value string) bool { _, found := one.inHeader(value); return found }) {
			return fmt.Sprintf("the request carries the stand-in for a secret elsewhere than in %s, where the secret of [upstream.%s] says", k.where(), c.upstream.Name)
		}
	}
	return ""
}

// where is the place of the secret in words.
func (k *keptSecrets) where() string {
	if k.place.Query != "" {
		return "the query parameter " + k.place.Query
	}
	return "the header " + k.place.Header
}

// putInto is a request with secrets for stand-ins.
func (k *keptSecrets) putInto(c *call, req *http.Request) *http.Request {
	if k == nil || c.scheme != "https" || req.URL.Scheme != "https" {
		return req
	}
	req = req.Clone(req.Context())
	values := req.Header[http.CanonicalHeaderKey(k.place.Header)]
	for _, one := range k.pairs {
		req.URL.RawQuery, _ = one.inQuery(req.URL.RawQuery, k.place.Query)
		for i, value := range values {
			values[i], _ = one.inHeader(value)
		}
	}
	return req
}

// inQuery is a query with the secret for the stand-in; the rest stays as it is written.
func (s standIn) inQuery(raw, name string) (query string, found bool) {
	parts := strings.Split(raw, "&")
	for i, part := range parts {
		key, value, _ := strings.Cut(part, "=")
		if is, err := url.QueryUnescape(key); err != nil || is != name || name == "" {
			continue
		}
		if is, err := url.QueryUnescape(value); err == nil && is == s.text {
			parts[i], found = key+"="+url.QueryEscape(s.secret), true
		}
	}
	return strings.Join(parts, "&"), found
}

// inHeader is the value of a header with the secret for the stand-in, which may follow a scheme
// or be a half of Basic.
func (s standIn) inHeader(value string) (header string, found bool) {
	if before, isLast := strings.CutSuffix(value, s.text); isLast {
		return before + s.secret, true
	}
	scheme, rest, _ := strings.Cut(value, " ")
	text, err := base64.StdEncoding.DecodeString(strings.TrimSpace(rest))
	if err != nil || !strings.EqualFold(scheme, "Basic") {
		return value, false
	}
	user, password, isPair := strings.Cut(string(text), ":")
	if !isPair || user != s.text && password != s.text {
		return value, false
	}
	if user == s.text {
		user = s.secret
	}
	if password == s.text {
		password = s.secret
	}
	return scheme + " " + base64.StdEncoding.EncodeToString([]byte(user+":"+password)), true
}

// text is a text without secrets.
func (k *keptSecrets) text(text string) string { return k.redacts(k.back.Replace(text)) }

// mask removes secrets from the values of headers.
func (k *keptSecrets) mask(header http.Header) {
	if k == nil {
		return
	}
	for _, values := range header {
		for i, value := range values {
			values[i] = k.text(value)
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

// masked is an error without secrets, since it may have what the server sent.
func (k *keptSecrets) masked(err error) error {
	if k == nil || err == nil {
		return err
	}
	return &maskedError{err, k.text(err.Error())}
}

type maskedError struct {
	error
	text string
}

// Error implements error.
func (e *maskedError) Error() string { return e.text }

// Unwrap returns the cause.
func (e *maskedError) Unwrap() error { return e.error }
