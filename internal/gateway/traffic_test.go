//nolint:bodyclose // each test closes what it gets
package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// Bodies of all sizes arrive whole, with a length or in chunks, both ways.
func TestBodiesArriveWhole(t *testing.T) {
	w := newWorld(t, worldConfig, func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("Was-Length", fmt.Sprint(req.ContentLength))
		_, _ = w.Write(body)
	})
	calls := int64(0)
	for _, h2 := range []bool{false, true} {
		client := w.client(h2)
		for _, size := range []int{0, 1, readFirst - 1, readFirst, readFirst + 1, 300 << 10, 3 << 20} {
			for _, chunked := range []bool{false, true} {
				for _, expect := range []string{"", "100-continue"} {
					text := make([]byte, size)
					_, _ = rand.Read(text)
					var body io.Reader = bytes.NewReader(text)
					if chunked {
						body = io.MultiReader(body) // of no known length
					}
					req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, "https://api.example.com/", body))(t)
					if expect != "" {
						req.Header.Set("Expect", expect)
					}
					resp := must.Get(client.Do(req))(t)
					got := must.Get(io.ReadAll(resp.Body))(t)
					_ = resp.Body.Close()
					what := fmt.Sprintf("%d bytes, chunked %t, expect %q, HTTP/2 %t", size, chunked, expect, h2)
					check.Equal(t, resp.StatusCode, 200, what)
					check.Equal(t, bytes.Equal(got, text), true, what)
					if !chunked {
						check.Equal(t, resp.Header.Get("Was-Length"), fmt.Sprint(size), what)
					}
					calls++
				}
			}
		}
	}
	check.Equal(t, w.charged("any/main"), calls, "units")
}

// One 100 Continue at most comes before the answer.
func TestOneContinue(t *testing.T) {
	w := newWorld(t, worldConfig, hello)
	conn := w.opened("api.example.com:443", "api.example.com", "http/1.1")
	_, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 3\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n")
	must.Do(t, err)
	from := bufio.NewReader(conn)
	check.Equal(t, must.Get(from.ReadString('\n'))(t), "HTTP/1.1 100 Continue\r\n", "first")
	_, err = io.WriteString(conn, "abc")
	must.Do(t, err)
	rest := string(must.Get(io.ReadAll(from))(t))
	check.Equal(t, strings.Count(rest, "HTTP/1.1 "), 1, "answers after the first: "+rest)
	check.Equal(t, strings.Contains(rest, "200 OK"), true, rest)
}

// Events arrive one by one, also on HTTP/2.
func TestEventsFlow(t *testing.T) {
	next := make(chan struct{})
	w := newWorld(t, worldConfig, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 5 {
			_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
			_ = http.NewResponseController(w).Flush()
			<-next
		}
	})
	for _, h2 := range []bool{false, true} {
		resp := must.Get(w.client(h2).Get("https://api.example.com/"))(t)
		from := bufio.NewReader(resp.Body)
		for i := range 5 {
			check.Equal(t, must.Get(from.ReadString('\n'))(t), fmt.Sprintf("data: %d\n", i), "event")
			must.Get(from.ReadString('\n'))(t)
			next <- struct{}{}
		}
		_, err := from.ReadByte()
		check.Is(t, err, io.EOF)
		_ = resp.Body.Close()
	}
}

// A stream in both directions: each side hears the other before it ends, as gRPC's do. The
// errors of gRPC are answers without a body whose trailers are their header.
func TestStreamsBothWays(t *testing.T) {
	w := newWorld(t, worldConfig, func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		if req.URL.Path == "/fails" {
			w.Header().Set("Grpc-Status", "9")
			w.WriteHeader(http.StatusOK)
			return
		}
		w.Header().Set("Trailer", "Grpc-Status")
		from := bufio.NewReader(req.Body)
		for {
			line, err := from.ReadString('\n')
			if err != nil {
				break
			}
			_, _ = io.WriteString(w, "echo "+line)
			_ = http.NewResponseController(w).Flush()
		}
		w.Header().Set("Grpc-Status", "0")
	})
	client := w.client(true)
	for range 20 {
		read, write := io.Pipe()
		req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, "https://api.example.com/echo", read))(t)
		req.Header.Set("Content-Type", "application/grpc")
		req.Header.Set("TE", "trailers")
		go func() { _, _ = io.WriteString(write, "first\n") }()
		resp := must.Get(client.Do(req))(t)
		from := bufio.NewReader(resp.Body)
		check.Equal(t, must.Get(from.ReadString('\n'))(t), "echo first\n", "first")
		_, _ = io.WriteString(write, "second\n")
		check.Equal(t, must.Get(from.ReadString('\n'))(t), "echo second\n", "second")
		_ = write.Close()
		_, err := from.ReadByte()
		check.Is(t, err, io.EOF)
		_ = resp.Body.Close()
		check.Equal(t, resp.Trailer.Get("Grpc-Status"), "0", "status")
		failed := must.Get(client.Post("https://api.example.com/fails", "application/grpc", strings.NewReader("x")))(t)
		_ = failed.Body.Close()
		check.Equal(t, failed.Header.Get("Grpc-Status"), "9", "status in the header")
	}
	check.Equal(t, w.charged("any/main"), 40, "units")
}

// An answer that begins before the request's body has ended reaches the program whole; the
// connection is not used again.
func TestEarlyAnswers(t *testing.T) {
	const size = 200 << 10
	w := newWorld(t, worldConfig, func(w http.ResponseWriter, req *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 needs none
		_, _ = io.CopyN(io.Discard, req.Body, 1000)
		w.Header().Set("Content-Type", "text/event-stream")
		for range 20 {
			_, _ = io.WriteString(w, strings.Repeat("x", size/20))
			_ = http.NewResponseController(w).Flush()
		}
		_, _ = io.Copy(io.Discard, req.Body)
	})
	for _, h2 := range []bool{false, true} {
		client := w.client(h2)
		var cut atomic.Int64
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				for range 10 {
					req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://api.example.com/", bytes.NewReader(make([]byte, 300<<10)))
					if err != nil {
						cut.Add(1)
						return
					}
					resp, err := client.Do(req)
					if err != nil {
						cut.Add(1)
						continue
					}
					n, err := io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
					if n != size || err != nil {
						cut.Add(1)
					}
				}
			})
		}
		all.Wait()
		check.Equal(t, cut.Load(), 0, "cut answers")
	}
}

// A program that goes away while its request is under way has been charged, and the upstream
// hears that it is gone.
func TestAProgramGoesAway(t *testing.T) {
	gone := make(chan struct{}, 2)
	begun := make(chan struct{}, 2)
	w := newWorld(t, worldConfig, func(_ http.ResponseWriter, req *http.Request) {
		begun <- struct{}{}
		<-req.Context().Done()
		gone <- struct{}{}
	})
	for _, h2 := range []bool{false, true} {
		client := w.client(h2)
		ended := make(chan error)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			resp, err := client.Do(must.Get(http.NewRequestWithContext(ctx, http.MethodGet, "https://api.example.com/", nil))(t))
			if err == nil {
				_ = resp.Body.Close()
			}
			ended <- err
		}()
		<-begun
		cancel()
		check.Equal(t, <-ended != nil, true, "an error")
		<-gone
	}
	b := must.Get(w.open("any/main"))(t)
	status := must.Get(b.Status(t.Context()))(t)
	check.Equal(t, status.Limits[0].Used, 2, "used")
	must.Do(t, b.Close())
}

// WebSockets are charged once, whatever they carry.
func TestWebSockets(t *testing.T) {
	w := newWorld(t, worldConfig, func(w http.ResponseWriter, _ *http.Request) {
		conn, from, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(conn, from)
		_ = conn.Close()
	})
	conn := w.opened("api.example.com:443", "api.example.com", "http/1.1")
	_, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: api.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	must.Do(t, err)
	from := bufio.NewReader(conn)
	resp := must.Get(http.ReadResponse(from, nil))(t)
	check.Equal(t, resp.StatusCode, 101, "status")
	for _, word := range []string{"one", "two"} {
		_, err = io.WriteString(conn, word)
		must.Do(t, err)
		got := make([]byte, 3)
		must.Get(io.ReadFull(from, got))(t)
		check.Equal(t, string(got), word, "echo")
	}
	_ = conn.Close()
	check.Equal(t, w.charged("any/main"), 1, "units")
}

// Plain http is metered, too, by an absolute address and through CONNECT. A company's proxy is
// asked for the whole address.
func TestPlainHTTP(t *testing.T) {
	w := newWorld(t, worldConfig, hello)
	company := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = fmt.Fprint(w, req.Header.Get("Proxy-Authorization"), req.RequestURI, " ", req.Host)
	}))
	t.Cleanup(company.Close)
	address := must.Get(url.Parse(company.URL))(t)
	w.g.wire.proxy = func(*url.URL) (*url.URL, error) { return address, nil }
	w.g.wire.usual.Proxy = http.ProxyURL(address)
	client := w.client(false)
	_, body := get(t, client, "http://api.example.com/a%2Fb?c;d")
	check.Equal(t, body, "http://api.example.com/a%2Fb?c;d api.example.com", "metered")
	_, body = get(t, client, "http://other.example.com/x")
	check.Equal(t, body, "http://other.example.com/x other.example.com", "passed on")
	proxy := must.Get(url.Parse(w.variable("HTTPS_PROXY")))(t)
	raw := must.Get(net.Dial("tcp", proxy.Host))(t)
	_, err := fmt.Fprintf(raw, "GET http://api.example.com HTTP/1.1\r\nHost: api.example.com\r\nProxy-Authorization: %s\r\nConnection: close\r\n\r\n",
		proxyHeader(proxy.User).Get("Proxy-Authorization"))
	must.Do(t, err)
	check.Equal(t, strings.Contains(string(must.Get(io.ReadAll(raw))(t)), "http://api.example.com/ api.example.com"), true, "without a path")
	must.Do(t, raw.Close())
	conn := w.tunnel("api.example.com:80")
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n\r\n")
	must.Do(t, err)
	check.Equal(t, strings.Contains(string(must.Get(io.ReadAll(conn))(t)), "200 OK"), true, "through CONNECT")
	check.Equal(t, w.charged("any/main"), 3, "units")
	check.Equal(t, w.g.Tally().Tunnels["other.example.com"], 1, "named")
}

// An upstream at an address of this machine is metered, whatever NO_PROXY says.
func TestAddresses(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(hello))
	t.Cleanup(server.Close)
	w := newWorld(t, strings.ReplaceAll(worldConfig, `hosts = ["api.example.com"`, `base_url = "`+server.URL+`"
hosts = ["api.example.com"`), hello, func(o *Options) { o.Env = append(o.Env, "NO_PROXY=127.0.0.1,localhost") })
	w.g.wire.proxy = func(*url.URL) (*url.URL, error) { return nil, nil } //nolint:nilnil // as net/http has it
	w.g.wire.usual.Proxy = nil
	check.Equal(t, strings.Contains(w.variable("NO_PROXY"), "127.0.0.1"), false, w.variable("NO_PROXY"))
	get(t, w.client(false), server.URL+"/x")
	check.Equal(t, w.charged("any/main"), 1, "units")
}

// Nobody keeps a gateway from closing: not a connection that says nothing, nor a request that
// does not end. What has ended by then is in the tally.
func TestClose(t *testing.T) {
	for range 2 {
		begun := make(chan struct{})
		w := newWorld(t, strings.ReplaceAll(worldConfig, "unknown_operation = 1\n[upstream.any.limit", `
[upstream.any.costs]
ask = { units = 50, actual = { json = "cost" }, match = "api.example.com/" }
[upstream.any.limit`), func(w http.ResponseWriter, req *http.Request) {
			if req.URL.Path == "/hangs" {
				close(begun)
				<-req.Context().Done()
			}
			_, _ = io.WriteString(w, `{"cost":7}`)
		})
		for _, address := range []string{w.variable("QUOTACTL_METER_DIRECT"), w.variable("QUOTACTL_METER")} {
			idle := must.Get(net.Dial("tcp", address))(t)
			t.Cleanup(func() { _ = idle.Close() })
			_, err := idle.Write([]byte{tlsHandshake, 3})
			must.Do(t, err)
		}
		client := w.client(true)
		go func() {
			if resp, err := client.Get("https://api.example.com/hangs"); err == nil {
				_ = resp.Body.Close()
			}
		}()
		<-begun
		get(t, client, "https://api.example.com/a")
		must.Do(t, w.g.Close())
		check.Equal(t, w.g.Tally().Budgets["any/main"].Units >= 7, true, "the tally")
		w.g = must.Get(Start(t.Context(), w.g.options))(t) // for the cleanup
	}
}

// A tunnel carries what neither TLS nor HTTP begins, also if the server speaks first.
func TestTunnels(t *testing.T) {
	w := newWorld(t, worldConfig, hello)
	l := httptest.NewUnstartedServer(nil).Listener
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, "220 ready\n")
		_, _ = io.Copy(conn, conn)
		_ = conn.Close()
	}()
	w.g.wire.proxy = func(*url.URL) (*url.URL, error) { return nil, nil } //nolint:nilnil // as net/http has it
	conn := w.tunnel(l.Addr().String())
	from := bufio.NewReader(conn)
	check.Equal(t, must.Get(from.ReadString('\n'))(t), "220 ready\n", "greeting")
	_, err := io.WriteString(conn, "\x00\x01hello\n")
	must.Do(t, err)
	check.Equal(t, must.Get(from.ReadString('\n'))(t), "\x00\x01hello\n", "echo")
	must.Do(t, conn.(*peeked).CloseWrite())
	_, err = from.ReadByte()
	check.Is(t, err, io.EOF)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error("cut")
	}
}
