package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// Upstream and ledger count the same, over HTTP/1.1 and HTTP/2.
func TestCallsAreCharged(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		w := newWorld(t, worldConfig, hello)
		client := w.client(h2)
		for range 3 {
			resp, body := get(t, client, "https://www.googleapis.com/youtube/v3/search?q=a") //nolint:bodyclose // get closes it
			check.Equal(t, resp.StatusCode, 200, "status")
			check.Equal(t, body, "hello", "body")
			check.Equal(t, resp.ProtoMajor == 2, h2, "HTTP/2")
		}
		get(t, client, "https://www.googleapis.com/youtube/v3/videos") //nolint:bodyclose // as above
		get(t, client, "https://www.googleapis.com/drive/v3/files")    //nolint:bodyclose // as above
		get(t, client, "https://other.example.com/")                   //nolint:bodyclose // as above
		check.Equal(t, w.charged("youtube/key1"), 301, "units")
		check.Equal(t, len(w.Requests()), 6, "requests")
		tally := w.g.Tally()
		check.Equal(t, *tally.Budgets["youtube/key1"], Spent{Calls: 4, Units: 301}, "tally")
		check.Equal(t, tally.Passed["www.googleapis.com/drive"], 1, "passed")
		check.Equal(t, tally.Tunnels["other.example.com"], 1, "tunnels")
	}
}

// Paths and queries arrive byte for byte, and headers as they were.
func TestRequestsArriveAsSent(t *testing.T) {
	w := newWorld(t, worldConfig, hello)
	for _, target := range []string{
		`/a%2Fb//c;d=1/../e%20f%7E~/x?q=1;2&a=%zz&b=a+b%20c&b`, "/?", "//double/x", "/%41?%41", "/a|b", "/x?a=/../b", "/caf\xc3\xa9",
	} {
		conn := w.opened("api.example.com:443", "api.example.com", "http/1.1")
		_, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: api.example.com\r\nTE: trailers\r\nVia: 1.0 fred\r\nX-Forwarded-For: 1.2.3.4\r\nX-A: 1\r\nX-A: 2\r\nConnection: close\r\n\r\n", target)
		must.Do(t, err)
		resp := must.Get(http.ReadResponse(bufio.NewReader(conn), nil))(t) //nolint:bodyclose // the next line does
		_ = resp.Body.Close()
		check.Equal(t, resp.StatusCode, 200, target)
		all := w.Requests()
		last := all[len(all)-1]
		check.Equal(t, last.RequestURI, target, "target")
		check.EqualSlices(t, last.Header["X-A"], []string{"1", "2"}, "X-A")
		check.Equal(t, last.Header.Get("Via")+last.Header.Get("X-Forwarded-For")+last.Header.Get("Te"), "1.0 fred1.2.3.4trailers", "headers")
		_, hasAgent := last.Header["User-Agent"]
		check.Equal(t, hasAgent, false, "an agent was added")
	}
}

// What is refused at the door reaches nobody, and is not charged.
func TestWrongRequests(t *testing.T) {
	w := newWorld(t, worldConfig, hello)
	for request, status := range map[string]int{
		"GET / HTTP/1.1\r\nHost: www.googleapis.com\r\n\r\n":                                                   421,
		"GET https://www.googleapis.com/ HTTP/1.1\r\nHost: api.example.com\r\n\r\n":                            421,
		"TRACE / HTTP/1.1\r\nHost: api.example.com\r\n\r\n":                                                    405,
		"CONNECT api.example.com:443 HTTP/1.1\r\nHost: api.example.com\r\n\r\n":                                405,
		"GET / HTTP/1.1\r\nHost: api.example.com\r\nHost: www.googleapis.com\r\n\r\n":                          400,
		"POST / HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab":         400,
		"POST / HTTP/1.1\r\nHost: api.example.com\r\nTransfer-Encoding: gzip\r\nContent-Length: 2\r\n\r\nab":   501,
		"GET / HTTP/1.1\r\nHost: api.example.com:8443\r\n\r\n":                                                 421,
		"GET / HTTP/1.1\r\nHost: api.example.com\r\nX-Quotactl-Charged: any/main unmatched id " + "00\r\n\r\n": 200,
		"GET / HTTP/1.0\r\n\r\n":                               200,
		"GET / HTTP/1.1\r\nHost: API.example.com.:443\r\n\r\n": 200,
	} {
		conn := w.opened("api.example.com:443", "api.example.com", "http/1.1")
		_, err := io.WriteString(conn, request)
		must.Do(t, err)
		resp := must.Get(http.ReadResponse(bufio.NewReader(conn), nil))(t) //nolint:bodyclose // it is closed below
		_ = resp.Body.Close()
		check.Equal(t, resp.StatusCode, status, request)
	}
	units := w.charged("any/main")
	check.Equal(t, units, int64(len(w.Requests())), "units")
	check.Equal(t, len(w.Requests()), 3, "requests")
	for _, req := range w.Requests() {
		check.Equal(t, req.Header.Get("X-Quotactl-Charged"), "", "a header of ours")
	}
}

// A length beside chunks: both servers read the chunks, so that no second request hides in them.
func TestLengthBesideChunks(t *testing.T) {
	w := newWorld(t, worldConfig, hello)
	conn := w.opened("api.example.com:443", "api.example.com", "http/1.1")
	_, err := io.WriteString(conn, "POST /a HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /b HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n\r\n")
	must.Do(t, err)
	_, _ = io.ReadAll(conn)
	units := w.charged("any/main")
	check.Equal(t, units, int64(len(w.Requests())), "units")
}

// SNI decides which host is opened, and the address of CONNECT where it is dialled.
func TestTheNameDecides(t *testing.T) {
	w := newWorld(t, worldConfig, hello)
	for _, c := range []struct {
		connect, name string
		units         int64 // more of any/main
	}{
		{"api.example.com:443", "api.example.com", 1},
		{"api.example.com:8443", "api.example.com", 1},
		{"203.0.113.7:443", "api.example.com", 1},
		{"other.example.com:443", "api.example.com", 1},
		{"api.example.com:443", "other.example.com", 0},
		{"api.example.com:444", "api.example.com", 0},
		{"pinned.example.com:443", "pinned.example.com", 0},
	} {
		before := w.charged("any/main")
		conn := w.opened(c.connect, c.name, "http/1.1")
		_, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", strings.TrimSuffix(c.name+":"+strings.Split(c.connect, ":")[1], ":443"))
		must.Do(t, err)
		resp := must.Get(http.ReadResponse(bufio.NewReader(conn), nil))(t) //nolint:bodyclose // it is closed below
		_ = resp.Body.Close()
		check.Equal(t, resp.StatusCode, 200, c.connect+" "+c.name)
		after := w.charged("any/main")
		check.Equal(t, after-before, c.units, c.connect+" "+c.name)
		all := w.Dialled()
		check.Equal(t, all[len(all)-1], c.connect, "dialled")
	}
}
