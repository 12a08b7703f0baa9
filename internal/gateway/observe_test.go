package gateway

import (
	"bufio"
	"bytes"
	"crypto/x509"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/draft"
	"github.com/quotactl/quotactl/internal/must"
)

// observing is a world whose gateway charges nothing: a budget that is opened fails the test.
func observing(t *testing.T, handler http.HandlerFunc, change func(*Observation)) (*world, *draft.Log) {
	o := &Observation{Log: draft.NewLog(nil)}
	change(o)
	w := newWorld(t, worldConfig, handler, func(options *Options) {
		options.Observe = o
		options.Open = func(name string) (*budget.Budget, error) {
			t.Errorf("%s was opened", name)
			return nil, http.ErrAbortHandler
		}
	})
	return w, o.Log
}

// seenBy is what a log has, a line each.
func seenBy(l *draft.Log) (lines []string) {
	for _, h := range l.Hosts() {
		for _, kind := range h.Kinds() {
			line := kind.Method + " " + h.Name + kind.Path + " " + kind.Preset
			for class, n := range h.Rows[kind].Answers {
				line += " " + class + strings.Repeat("+", n)
			}
			lines = append(lines, line)
		}
	}
	return lines
}

// Calls are noted and pass, over HTTP/1.1, HTTP/2 and WebSocket, with large bodies and to an upstream
// that cannot be reached; an upstream's own pattern is what its calls are noted by.
func TestObserve(t *testing.T) {
	w, log := observing(t, func(w http.ResponseWriter, req *http.Request) {
		n, _ := io.Copy(io.Discard, req.Body)
		if req.Header.Get("Upgrade") == "" {
			w.Header().Set("X-Read", strings.Repeat("+", int(n>>20)))
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		must.Do(t, err)
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_ = conn.Close()
	}, func(*Observation) {})
	for _, h2 := range []bool{false, true} {
		client := w.client(h2)
		get(t, client, "https://www.googleapis.com/youtube/v3/videos?id=7")                                                //nolint:bodyclose // get closes it
		get(t, client, "https://api.example.com/v1/items/77/")                                                             //nolint:bodyclose // get closes it
		get(t, client, "https://other.example.com/")                                                                       //nolint:bodyclose // get closes it
		resp := must.Get(client.Post("https://api.example.com/up", "text/plain", bytes.NewReader(make([]byte, 1<<20))))(t) //nolint:bodyclose // it is closed below
		check.Equal(t, resp.Header.Get("X-Read"), "+", "MiB arrived")
		check.Equal(t, resp.ProtoMajor, map[bool]int{false: 1, true: 2}[h2], "protocol")
		must.Do(t, resp.Body.Close())
	}
	conn := w.opened("api.example.com:443", "api.example.com", "http/1.1")
	_, err := io.WriteString(conn, "GET /live HTTP/1.1\r\nHost: api.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	must.Do(t, err)
	check.Equal(t, must.Get(http.ReadResponse(bufio.NewReader(conn), nil))(t).StatusCode, 101, "status") //nolint:bodyclose // it has none
	w.g.stop()
	check.EqualSlices(t, seenBy(log), []string{
		"GET api.example.com/live any 1xx+", "POST api.example.com/up any 2xx++", "GET api.example.com/v1/items/{id}/ any 2xx++",
		"GET www.googleapis.com/youtube/v3/videos youtube 2xx++",
	})
	check.Equal(t, w.g.Tally().Tunnels["other.example.com"], 2, "tunnels")
}

// Only the hosts that are named are opened, and the CA vouches for no other; with All it vouches for
// every name, and for no address.
func TestObservedHostsBoundTheCA(t *testing.T) {
	named := must.Get(config.ParseText("named", "[upstream.x]\nhosts = [\"other.example.com\"]\n"))(t).Upstreams
	w, log := observing(t, hello, func(o *Observation) { o.Hosts = named })
	get(t, w.client(true), "https://other.example.com/a") //nolint:bodyclose // get closes it
	get(t, w.client(true), "https://api.example.com/b")   //nolint:bodyclose // get closes it
	check.EqualSlices(t, seenBy(log), []string{"GET other.example.com/a  2xx+"})
	check.EqualSlices(t, w.g.authority.intermediate.PermittedDNSDomains, []string{"quotactl.invalid", "other.example.com"})
	check.Equal(t, w.variable("QUOTACTL_METER_HOSTS"), "other.example.com")

	w, log = observing(t, hello, func(o *Observation) { o.All = true })
	get(t, w.client(true), "https://other.example.com/a") //nolint:bodyclose // get closes it
	get(t, w.client(false), "https://a.myshopify.com/b")  //nolint:bodyclose // get closes it
	check.EqualSlices(t, seenBy(log), []string{"GET a.myshopify.com/b any 2xx+", "GET other.example.com/a  2xx+"})
	check.Equal(t, len(w.g.authority.intermediate.PermittedDNSDomains), 0, "constraints")
	check.Equal(t, len(w.g.authority.intermediate.ExcludedIPRanges), 2, "ranges")
	check.Equal(t, w.g.owners.opens("192.0.2.1", 443), false, "an address is opened")
	check.Equal(t, w.g.owners.opens("other.example.com", 8443), false, "another port is opened")
	leaf := must.Get(w.g.authority.leaf("any.example.net"))(t)
	pool := x509.NewCertPool()
	pool.AddCert(w.g.authority.root)
	between := x509.NewCertPool()
	between.AddCert(w.g.authority.intermediate)
	_, err := leaf.Leaf.Verify(x509.VerifyOptions{DNSName: "any.example.net", Roots: pool, Intermediates: between})
	check.NoError(t, err)
	check.Contains(t, ","+w.variable("NO_PROXY")+",", ",169.254.169.254,")
}
