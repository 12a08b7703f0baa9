package gateway

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// Without the token the proxy does nothing but ask for it, on a connection that stays.
func TestTheProxyAsksForItsToken(t *testing.T) {
	w := newWorld(t, worldConfig, hello)
	proxy := must.Get(url.Parse(w.variable("HTTPS_PROXY")))(t)
	conn := must.Get(net.Dial("tcp", proxy.Host))(t)
	defer func() { _ = conn.Close() }()
	from := bufio.NewReader(conn)
	for _, request := range []string{
		"CONNECT api.example.com:443 HTTP/1.1\r\nHost: api.example.com:443\r\n\r\n",
		"CONNECT api.example.com:443 HTTP/1.1\r\nHost: api.example.com:443\r\nProxy-Authorization: Basic bWV0ZXI6d3Jvbmc=\r\n\r\n",
		"GET http://api.example.com/ HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
		"GET /quotactl HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		_, err := io.WriteString(conn, request)
		must.Do(t, err)
		resp := must.Get(http.ReadResponse(from, &http.Request{Method: http.MethodGet}))(t) //nolint:bodyclose // the connection is kept
		must.Get(io.Copy(io.Discard, resp.Body))(t)
		check.Equal(t, resp.StatusCode, 407, request)
		check.Equal(t, resp.Header.Get("Proxy-Authenticate"), `Basic realm="quotactl"`, request)
	}
	check.Equal(t, len(w.Requests()), 0, "requests")
}

// The refusal names an upstream whose certificate does not verify, and one that asks for the
// program's; nothing is charged.
func TestUpstreamsThatCannotBeOpened(t *testing.T) {
	w := newWorld(t, strings.ReplaceAll(worldConfig, `"*.myshopify.com"`, `"unknown.example.com"`), hello)
	resp, body := get(t, w.client(false), "https://unknown.example.com/") //nolint:bodyclose // get closes it
	check.Equal(t, resp.StatusCode, 502, "status")
	check.Equal(t, resp.Header.Get("X-Quotactl"), "error", "header")
	check.Equal(t, strings.Contains(body, "--tunnel unknown.example.com"), true, body)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		w = newWorld(t, worldConfig, hello)
		w.TLS.ClientAuth, w.TLS.MaxVersion = tls.RequireAnyClientCert, version
		resp, body = get(t, w.client(true), "https://api.example.com/") //nolint:bodyclose // as above
		check.Equal(t, resp.StatusCode, 502, "status")
		check.Equal(t, strings.Contains(body, "asks for a client certificate") && strings.Contains(body, "--tunnel api.example.com"), true, body)
		check.Equal(t, w.charged("any/main"), 0, "units")
	}
}

// A Transport in the program has charged a call: the gateway does not do so again. What it says
// holds for one sending, for its own request alone, and for those who know the token.
func TestChargedByTheProgram(t *testing.T) {
	w := newWorld(t, worldConfig, hello)
	w.setenv(t)
	b := must.Get(w.open("any/main"))(t)
	store := b.Spec().Store
	transport := must.Get(budgethttp.New(b, budgethttp.Options{Base: w.client(true).Transport, Operation: "unmatched"}))(t)
	for range 3 {
		get(t, &http.Client{Transport: transport}, "https://api.example.com/a?b") //nolint:bodyclose // get closes it
	}
	check.Equal(t, w.charged("any/main"), 3, "units")
	req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.example.com/a?b", nil))(t)
	for i, proof := range []string{
		budgethttp.Proof(w.g.token, "any/main", store, "unmatched", "id1", req), // once
		budgethttp.Proof(w.g.token, "any/main", store, "unmatched", "id1", req), // not again
		budgethttp.Proof("other", "any/main", store, "unmatched", "id2", req),
		budgethttp.Proof(w.g.token, "youtube/key1", store, "unmatched", "id3", req),
		strings.Replace(budgethttp.Proof(w.g.token, "any/main", store, "unmatched", "id4", req), "id4", "id5", 1),
		"any/main",
	} {
		again := req.Clone(t.Context())
		again.Header.Set(budgethttp.ChargedHeader, proof)
		before := w.charged("any/main")
		resp := must.Get(w.client(false).Do(again))(t) //nolint:bodyclose // the next line does
		_ = resp.Body.Close()
		check.Equal(t, w.charged("any/main")-before, int64(min(i, 1)), proof)
	}
	for _, req := range w.Requests() {
		check.Equal(t, req.Header.Get(budgethttp.ChargedHeader), "", "the header has reached the upstream")
	}
	must.Do(t, b.Close())
}

// setenv makes the test a program that the gateway meters.
func (w *world) setenv(t *testing.T) {
	proxy := w.variable("HTTPS_PROXY")
	t.Setenv("HTTPS_PROXY", proxy)
	t.Setenv("QUOTACTL_METER", must.Get(url.Parse(proxy))(t).Host)
	t.Setenv("QUOTACTL_METER_HOSTS", w.variable("QUOTACTL_METER_HOSTS"))
}

// A meter does not honour a charge in a ledger of another store, or of one that nothing names.
func TestChargedInAnotherLedger(t *testing.T) {
	var said []string
	w := newWorld(t, worldConfig, hello, func(o *Options) { o.Say = func(text string) { said = append(said, text) } })
	w.setenv(t)
	url := "sqlite://" + filepath.Join(t.TempDir(), "other.db")
	other := must.Get(open.Store(t.Context(), url, w.cfg.Store))(t)
	named := must.Get(open.BudgetOn(other, w.cfg, url, "any/main"))(t)
	spec := named.Spec()
	spec.Store = ""
	for _, b := range []*budget.Budget{named, must.Get(budget.New(other, spec))(t)} {
		transport := must.Get(budgethttp.New(b, budgethttp.Options{Base: w.client(true).Transport, Operation: "unmatched"}))(t)
		get(t, &http.Client{Transport: transport}, "https://api.example.com/a") //nolint:bodyclose // get closes it
		must.Do(t, b.Flush(t.Context()))
	}
	check.Equal(t, w.charged("any/main"), 2, "units in the meter's ledger")
	check.Equal(t, must.Get(named.Spent(t.Context(), budget.ByOperation, 0))(t).Total.Units, 2, "units in the other ledger")
	check.Equal(t, strings.Contains(strings.Join(said, "\n"), "calls to any/main itself, in another ledger"), true, "said")
	must.Do(t, other.Close())
}

// A quotactl in the command asks the meter about itself, and learns once that an upstream is metered.
func TestTheMeterAnswersWhatIsWithin(t *testing.T) {
	w := newWorld(t, worldConfig, hello, func(o *Options) {
		o.Digest, o.Call.Labels = "digest", budget.Labels{Job: "nightly"}
	})
	proxy := w.variable("HTTPS_PROXY")
	env := map[string]string{"HTTPS_PROXY": proxy, "QUOTACTL_METER": must.Get(url.Parse(proxy))(t).Host}
	lookup := func(name string) (string, bool) { value, found := env[name]; return value, found }
	for i, upstream := range []string{"", "youtube", "youtube", "closed", "nosuch"} {
		outer, found := AskOuter(t.Context(), lookup, upstream)
		check.Equal(t, found, true, "found")
		check.Equal(t, outer, Outer{Config: "digest", Job: "nightly", First: i == 1}, upstream)
	}
	env["HTTPS_PROXY"] = strings.Replace(proxy, "meter:", "meter:x", 1)
	_, found := AskOuter(t.Context(), lookup, "")
	check.Equal(t, found, false, "without the token")
	env["HTTPS_PROXY"] = strings.Replace(proxy, "meter:", "ann:", 1)
	_, found = AskOuter(t.Context(), lookup, "")
	check.Equal(t, found, false, "without a meter")
}
