package gateway

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

const (
	standInText = "0123456789abcdef0123456789abcdef"
	realSecret  = "s3cret/with+odd&ones"
)

// A query changes in the value that is the stand-in alone, and only in the parameter that carries the
// secret.
func TestStandInInQuery(t *testing.T) {
	one := standIn{standInText, realSecret}
	const put = "s3cret%2Fwith%2Bodd%26ones"
	for query, want := range map[string]string{
		"":                   "",
		"key=" + standInText: "key=" + put,
		"a=%2f&b;c&key=" + standInText + "&d=e=f&&":  "a=%2f&b;c&key=" + put + "&d=e=f&&",
		"%6bey=" + standInText:                       "%6bey=" + put,
		"key=%30" + standInText[1:]:                  "key=" + put,
		"key=" + standInText + "&key=" + standInText: "key=" + put + "&key=" + put,
		"Key=" + standInText:                         "",
		"key=a" + standInText:                        "",
		"key=" + standInText + "a":                   "",
		"other=" + standInText:                       "",
		"key=%zz" + standInText:                      "",
		"=" + standInText:                            "",
		standInText:                                  "",
		standInText + "=key":                         "",
	} {
		if want == "" {
			want = query
		}
		check.Equal(t, one.inQuery(query, "key"), want, query)
		check.Equal(t, one.inQuery(query, ""), query, "where no parameter carries the secret")
	}
}

func TestStandInInHeader(t *testing.T) {
	one := standIn{standInText, realSecret}
	pair := func(text string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(text)) }
	for value, want := range map[string]string{
		standInText:                       realSecret,
		"Bearer " + standInText:           "Bearer " + realSecret,
		"token " + standInText:            "token " + realSecret,
		"GoogleLogin auth=" + standInText: "GoogleLogin auth=" + realSecret,
		pair(standInText + ":"):           pair(realSecret + ":"),
		pair("ann:" + standInText):        pair("ann:" + realSecret),
		"Bearer":                          "",
		"Bearer " + standInText + "x":     "",
		"Bearer other":                    "",
		pair("ann:b:" + standInText):      "",
		pair(standInText):                 pair(realSecret),
		"Basic   " + base64.StdEncoding.EncodeToString([]byte("ann:other")): "",
		"Basic " + standInText[:31] + "!":                                   "",
		"":                                                                  "",
	} {
		if want == "" {
			want = value
		}
		check.Equal(t, one.inHeader(value), want, value)
	}
}

// Where a server repeats a secret, the command gets the stand-in, or nothing.
func TestKeptSecretsAreMasked(t *testing.T) {
	cfg := &config.Config{Upstreams: []config.Upstream{
		{Name: "shop", Secret: config.Secret{Query: "key"}, Credentials: []config.Credential{{Label: "main", SecretEnv: "A"}, {Label: "none"}}},
		{Name: "signed", Credentials: []config.Credential{{Label: "main", SecretEnv: "A"}}},
	}}
	o := Options{Config: cfg, StandIns: map[string]string{realSecret: standInText}, Secret: func(c config.Credential) string { return map[string]string{"A": realSecret + "\n"}[c.SecretEnv] }}
	known := newCredentials(cfg.Upstreams, nil, o.Secret, nil)
	all := newStandIns(o, known)
	check.Equal(t, len(all), 1, "upstreams")
	header := http.Header{
		"Location":  {"https://other.invalid/?key=s3cret%2Fwith%2Bodd%26ones&a=b"},
		"X-Echo":    {realSecret, "fine"},
		"X-Encoded": {"Basic " + base64.StdEncoding.EncodeToString([]byte(realSecret)), "s3cret/with\\u002bodd&amp;ones"},
	}
	all["shop"].mask(header)
	check.EqualSlices(t, header["Location"], []string{"https://other.invalid/?key=" + standInText + "&a=b"}, "Location")
	check.EqualSlices(t, header["X-Echo"], []string{standInText, "fine"}, "X-Echo")
	check.EqualSlices(t, header["X-Encoded"], []string{"Basic [secret]M=", "[secret]"}, "X-Encoded") // its last byte may be of something else
	check.Equal(t, all["shop"].hide("it said "+realSecret), "it said "+standInText, "a text")
	all["signed"].mask(http.Header{"X": {all["signed"].hide("x")}}) // there is none
}

// A server that repeats a secret ahead of its answer, after it, or in a malformed one, gives the
// command nothing: over HTTP/1.1 and HTTP/2.
func TestKeptSecretsStayOutOfAnswers(t *testing.T) {
	toml := strings.Replace(worldConfig, "base_url", "secret = { header = \"X-Key\" }\nbase_url", 1)
	w := newWorld(t, toml, func(w http.ResponseWriter, req *http.Request) {
		key := req.Header.Get("X-Key")
		if req.URL.Query().Has("broken") {
			conn, _, err := http.NewResponseController(w).Hijack()
			must.Do(t, err)
			_, _ = fmt.Fprintf(conn, "HTTP/1.1 %s\r\n\r\n", key)
			_ = conn.Close()
			return
		}
		w.Header().Set("Link", "</a?key="+key+">")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Trailer", "X-Key-Was")
		_, _ = fmt.Fprint(w, key == realSecret)
		_ = http.NewResponseController(w).Flush() // an answer of known length has no trailer over HTTP/1.1
		w.Header().Set("X-Key-Was", key)
	}, func(o *Options) {
		o.Secret = func(c config.Credential) string { return map[string]string{"key1": realSecret}[c.Label] }
		o.StandIns = map[string]string{realSecret: standInText}
	})
	for _, h2 := range []bool{false, true} {
		hints := ""
		trace := &httptrace.ClientTrace{Got1xxResponse: func(_ int, header textproto.MIMEHeader) error {
			hints += header.Get("Link")
			return nil
		}}
		req := must.Get(http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodGet, "https://www.googleapis.com/youtube/v3/videos", nil))(t)
		req.Header.Set("X-Key", standInText)
		resp, err := w.client(h2).Do(req)
		must.Do(t, err)
		body := must.Get(io.ReadAll(resp.Body))(t)
		_ = resp.Body.Close()
		check.Equal(t, string(body), "true", "the upstream got the secret")
		check.Equal(t, hints, "</a?key="+standInText+">", "early hints")
		check.Equal(t, resp.Header.Get("Link"), hints, "Link")
		check.Equal(t, resp.Trailer.Get("X-Key-Was"), standInText, "the trailer")
	}
	w.g.wire.usual = &http.Transport{Proxy: w.g.wire.usual.Proxy, TLSClientConfig: &tls.Config{RootCAs: w.g.around.roots, NextProtos: []string{"http/1.1"}}} // which can be hijacked
	req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, "https://www.googleapis.com/youtube/v3/videos?broken", nil))(t)
	req.Header.Set("X-Key", standInText)
	resp, err := w.client(false).Do(req)
	must.Do(t, err)
	body := must.Get(io.ReadAll(resp.Body))(t)
	_ = resp.Body.Close()
	check.Equal(t, resp.StatusCode, http.StatusBadGateway, string(body))
	check.Contains(t, string(body), standInText)
	said := string(body) + strings.Join(slices.Collect(maps.Values(w.g.Tally().Why)), " ")
	check.Equal(t, strings.Contains(said, "s3cret"), false, said)
}
