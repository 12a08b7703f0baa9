package gateway

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/screen"
)

// Old versions of axios ask the proxy for the whole address also where it begins with https.
func TestWholeAddressesOfHTTPS(t *testing.T) {
	w := newWorld(t, worldConfig, hello)
	proxy := must.Get(url.Parse(w.variable("HTTPS_PROXY")))(t)
	for _, host := range []string{"api.example.com", "other.example.com"} {
		conn := must.Get(net.Dial("tcp", proxy.Host))(t)
		req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+host+"/a?b", nil))(t)
		password, _ := proxy.User.Password()
		req.SetBasicAuth(proxy.User.Username(), password)
		_, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nProxy-Authorization: %s\r\nConnection: close\r\n\r\n",
			req.URL, host, strings.Replace(req.Header.Get("Authorization"), "Basic", "basic", 1))
		must.Do(t, err)
		check.Equal(t, strings.Contains(string(must.Get(io.ReadAll(conn))(t)), "hello"), true, host)
		must.Do(t, conn.Close())
	}
	check.Equal(t, w.charged("any/main"), 1, "units")
}

// A program may offer HTTP/1.0, or no protocol at all.
func TestOldProtocols(t *testing.T) {
	w := newWorld(t, worldConfig, hello)
	for _, offer := range [][]string{nil, {"http/1.0"}, {"http/1.1"}, {"http/1.0", "http/1.1"}} {
		conn := w.opened("api.example.com:443", "api.example.com", offer...)
		_, err := io.WriteString(conn, "GET / HTTP/1.0\r\nHost: api.example.com\r\n\r\n")
		must.Do(t, err)
		check.Equal(t, strings.Contains(string(must.Get(io.ReadAll(conn))(t)), "hello"), true, fmt.Sprint(offer))
	}
}

// Answers have no type that the upstream did not state; OPTIONS * is the upstream's to answer.
func TestAnswersAreTheUpstreams(t *testing.T) {
	w := newWorld(t, worldConfig, func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = nil
		_, _ = io.WriteString(w, `{"a":1}`)
	})
	resp, _ := get(t, w.client(true), "https://api.example.com/") //nolint:bodyclose // get closes it
	check.Equal(t, len(resp.Header["Content-Type"]), 0, "Content-Type")
	conn := w.opened("api.example.com:443", "api.example.com", "http/1.1")
	_, err := io.WriteString(conn, "OPTIONS * HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n\r\n")
	must.Do(t, err)
	answer := must.Get(http.ReadResponse(bufio.NewReader(conn), nil))(t) //nolint:bodyclose // the next line does
	_ = answer.Body.Close()
	check.Equal(t, w.charged("any/main"), 2, "units")
}

// A program that sends all of a large upload before it reads gets the refusal, too.
func TestLargeRefusedUploads(t *testing.T) {
	w := newWorld(t, spentConfig, hello, noWait)
	for range 2 {
		get(t, w.client(true), "https://api.example.com/") //nolint:bodyclose // get closes it
	}
	const size = 20 << 20
	conn := w.opened("api.example.com:443", "api.example.com", "http/1.1")
	_, err := fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: %d\r\n\r\n", size)
	must.Do(t, err)
	piece := make([]byte, 1<<20)
	for range size / len(piece) {
		_, err = conn.Write(piece)
		must.Do(t, err)
	}
	answer := must.Get(http.ReadResponse(bufio.NewReader(conn), nil))(t) //nolint:bodyclose // the next line does
	_ = answer.Body.Close()
	check.Equal(t, answer.StatusCode, 402, "status")
}

// What a connection of the program that ends at once would have asked for is nobody's tunnel.
func TestConnectionsThatEndAtOnce(t *testing.T) {
	w := newWorld(t, worldConfig, hello)
	for _, host := range []string{"api.example.com:443", "other.example.com:443"} {
		must.Do(t, w.tunnel(host).Close())
	}
	conn := tls.Client(w.tunnel("api.example.com:443"), &tls.Config{ServerName: "api.example.com", MinVersion: tls.VersionTLS12})
	check.Equal(t, conn.Handshake() != nil, true, "the program trusts nobody")
	must.Do(t, conn.Close())
	broken := 0
	for end := time.Now().Add(time.Minute); broken == 0 && time.Now().Before(end); runtime.Gosched() {
		w.g.tally.count(func(all *Tally) { broken = all.Broken["api.example.com"] })
	}
	check.Equal(t, broken, 1, "handshakes broken off")
	w.g.stop()
	check.Equal(t, len(w.g.Tally().Tunnels), 0, "tunnels")
}

// A connection without a request says something only if its host got no request at all: a program
// that pins a key just closes, and one that connects ahead may, too.
func TestConnectionsWithoutRequests(t *testing.T) {
	w := newWorld(t, worldConfig, hello)
	for _, name := range []string{"api.example.com", "one.myshopify.com", "one.myshopify.com"} {
		must.Do(t, w.opened(name+":443", name).Close())
	}
	get(t, w.client(true), "https://api.example.com/") //nolint:bodyclose // get closes it
	must.Do(t, w.tunnel("api.example.com:443").(*peeked).CloseWrite())
	hangsUp := tls.Client(stalled{w.tunnel("api.example.com:443")}, &tls.Config{ServerName: "api.example.com", MinVersion: tls.VersionTLS12})
	check.Is(t, hangsUp.Handshake(), io.EOF, "a handshake that is given up")
	must.Do(t, hangsUp.Close())
	w.g.stop()
	tally := w.g.Tally()
	lines := tally.Lines("program", "", screen.Screen{}, nil)
	check.Equal(t, strings.Join(lines[1:], "\n"), "2 handshakes with one.myshopify.com were broken off by the program, as one with its own CA list or a pinned key does; --tunnel one.myshopify.com lets it pass unmetered")
}

// stalled is the connection of a program that says hello, and then nothing more.
type stalled struct{ net.Conn }

// Read implements net.Conn.
func (s stalled) Read(b []byte) (int, error) {
	if _, err := s.Conn.Read(b[:1]); err != nil {
		return 0, err
	}
	return 0, io.EOF
}

// Few handshakes are under way at once, and those of stalled programs end their turn.
func TestHandshakesTakeTurns(t *testing.T) {
	w := newWorld(t, worldConfig, hello)
	began := time.Now()
	for range mostHandshakes + 1 {
		conn := tls.Client(stalled{w.tunnel("api.example.com:443")}, &tls.Config{ServerName: "api.example.com", MinVersion: tls.VersionTLS12})
		check.Is(t, conn.Handshake(), io.EOF, "the program stalls once it is answered")
	}
	check.Equal(t, time.Since(began) >= handshakeTurn, true, "the last one has waited")
}

// The sweep leaves folders that others made.
func TestTheSweepLeavesOthers(t *testing.T) {
	dir := t.TempDir()
	thesis := filepath.Join(dir, "quotactl-meter-study", "thesis.txt")
	must.Do(t, os.Mkdir(filepath.Dir(thesis), 0o700))
	must.Do(t, os.WriteFile(thesis, nil, 0o600))
	newWorld(t, worldConfig, hello, func(o *Options) { o.Temp = dir })
	must.Get(os.Stat(thesis))(t)
}

// A proxy that would be ignored in silence is an error, which does not show its password.
func TestProxiesThatCannotBeRead(t *testing.T) {
	for variable, fits := range map[string]bool{
		"HTTPS_PROXY=http://ann:S PW%zz@127.0.0.1:1": false, "https_proxy=http://": false, "ALL_PROXY=http://127.0.0.1:1": false,
		"HTTPS_PROXY=http://ann:pw@proxy:3128": true, "HTTP_PROXY=proxy:3128": true, "HTTPS_PROXY=": true,
	} {
		name, value, _ := strings.Cut(variable, "=")
		err := checkProxies(environment{name: value})
		check.Equal(t, err == nil, fits, variable)
		if err != nil {
			check.Equal(t, strings.Contains(err.Error(), "PW"), false, err.Error())
		}
	}
}

// What the answers to another key report and refuse says nothing about the budget's own.
func TestAnswersToAnotherKey(t *testing.T) {
	w := newWorld(t, `
[upstream.any]
hosts = ["api.example.com"]
unknown_operation = 1
[upstream.any.limit.hour]
quota = 5000
window = "1h"
[upstream.any.report.left]
limit = "hour"
remaining = { header = "X-Remaining" }
[upstream.any.refusal.spent]
means = "exhausted"
status = 403
lock = "1h"
[upstream.any.credential.main]
secret_env = "KEY"
`, func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("X-Remaining", "10")
		if req.URL.Path == "/refused" {
			w.WriteHeader(http.StatusForbidden)
		}
	}, func(o *Options) { o.Secret = func(config.Credential) string { return "own" } })
	client := w.client(true)
	for _, address := range []string{"/a", "/a?key=other", "/refused?key=other", "/refused", "/a"} {
		get(t, client, "https://api.example.com"+address) //nolint:bodyclose // get closes it
	}
	check.Equal(t, w.charged("any/main"), 5, "units")
	get(t, client, "https://api.example.com/a?key=own") //nolint:bodyclose // as above
	check.Equal(t, w.charged("any/main"), 4990, "units with what its own key reports")
}

// A host of no upstream cannot be left out, and is probably mistyped.
func TestTunnelsAreHostsOfUpstreams(t *testing.T) {
	for tunnel, fits := range map[string]bool{
		"api.example.com": true, "API.example.com.": true, "api.example.com:443": true, "*.example.com": true, "a.myshopify.com": true,
		"example.com": false, "https://api.example.com": false, "api.example.org": false, "": false,
	} {
		w := newWorld(t, worldConfig, hello)
		o, err := newOwners(w.cfg.Upstreams, []string{tunnel})
		check.Equal(t, err == nil, fits, tunnel)
		if fits {
			check.Equal(t, o.opens("api.example.com", 443), tunnel == "a.myshopify.com", tunnel)
		}
	}
}

// A call that fails on its way is named with the reason, once for each host; and then not all
// is well.
func TestFailedCallsAreNamed(t *testing.T) {
	w := newWorld(t, worldConfig, hello)
	client := w.client(false)
	get(t, client, "https://api.example.com/") //nolint:bodyclose // get closes it
	tally := w.g.Tally()
	check.Equal(t, tally.Well(), true, "well")
	w.CloseClientConnections()
	w.Close()
	for range 2 {
		resp, _ := get(t, client, "https://api.example.com/") //nolint:bodyclose // as above
		check.Equal(t, resp.StatusCode, 502, "status")
	}
	tally = w.g.Tally()
	check.Equal(t, tally.Well(), false, "well")
	lines := tally.Lines("job", "job", screen.Pipe(), nil)
	check.Equal(t, strings.HasPrefix(lines[len(lines)-1], "2 calls to api.example.com failed: api.example.com did not answer: "), true, lines[len(lines)-1])
}

// What a program sends right behind its request to change the protocol reaches the server, which may
// answer once the program has ended its side. A program that does not end its own side keeps no
// gateway from closing.
func TestUpgrades(t *testing.T) {
	w := newWorld(t, worldConfig, func(w http.ResponseWriter, req *http.Request) {
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		if req.URL.Path == "/read" {
			all, _ := io.ReadAll(buffered)
			_, _ = fmt.Fprintf(conn, "read %q", all)
		}
		_ = conn.Close()
	})
	upgraded := func(path string) (*tls.Conn, *bufio.Reader) {
		conn := w.opened("api.example.com:443", "api.example.com", "http/1.1")
		_, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: api.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nfirst ")
		must.Do(t, err)
		from := bufio.NewReader(conn)
		resp := must.Get(http.ReadResponse(from, nil))(t) //nolint:bodyclose // it has none
		check.Equal(t, resp.StatusCode, 101, "status")
		return conn, from
	}
	conn, from := upgraded("/read")
	_, err := io.WriteString(conn, "second")
	must.Do(t, err)
	must.Do(t, conn.CloseWrite())
	check.Equal(t, string(must.Get(io.ReadAll(from))(t)), `read "first second"`, "answer")
	_, _ = upgraded("/end")
	w.g.stop()
}

// The last lines have what meter itself answers, and why no handshake is possible.
func TestErrorsOfMeterAreTold(t *testing.T) {
	w := newWorld(t, worldConfig, hello)
	conn := w.opened("api.example.com:443", "api.example.com", "http/1.1")
	_, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: www.googleapis.com\r\n\r\n")
	must.Do(t, err)
	resp := must.Get(http.ReadResponse(bufio.NewReader(conn), nil))(t) //nolint:bodyclose // the connection is closed
	check.Equal(t, resp.StatusCode, 421, "status")
	old := tls.Client(w.tunnel("a.myshopify.com:443"), &tls.Config{ServerName: "a.myshopify.com", MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11})
	check.Equal(t, old.Handshake() != nil, true, "an old version")
	w.g.stop()
	tally := w.g.Tally()
	check.Equal(t, tally.Well(), false, "well")
	lines := strings.Join(tally.Lines("run", "", screen.Pipe(), nil), "\n")
	check.Contains(t, lines, "1 call to api.example.com failed: the connection was opened for api.example.com, and the request is for another host")
	check.Contains(t, lines, "1 call to a.myshopify.com failed: the program offers only versions of TLS before 1.2")
}
