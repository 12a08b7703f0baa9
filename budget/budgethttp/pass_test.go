package budgethttp_test

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// readSpec prices everything at 5.
var readSpec = budget.Spec{Costs: map[string]budget.Cost{"read": {Units: 5}}}

// HTTP/2 and HTTP/1 carry bodies both ways, and trailers.
func TestBodiesAndTrailersPassThrough(t *testing.T) {
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprintf("HTTP/%d", version), func(t *testing.T) {
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Trailer", "X-Sum")
				sum := sha256.New()
				check.NoError(t, check.Err(io.Copy(io.MultiWriter(w, sum), r.Body)))
				check.Equal(t, r.Trailer.Get("X-Mine"), "mine", "the server got trailers")
				check.Equal(t, r.ProtoMajor, version, "the server got trailers")
				w.Header().Set("X-Sum", fmt.Sprintf("%x", sum.Sum(nil)))
			}))
			server.EnableHTTP2 = version == 2
			server.StartTLS()
			defer server.Close()
			b := open(t, readSpec)
			client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: server.Client().Transport, Operation: "read"})}
			const size = 8 << 20
			sent := sha256.New()
			req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, io.TeeReader(io.LimitReader(rand.Reader, size), sent)))(t)
			req.Trailer = http.Header{"X-Mine": {"mine"}}
			// HTTP/1 answers while it reads only when asked to; a body that fits the
			// sockets' buffers would do without.
			if version == 1 {
				req.Body = io.NopCloser(strings.NewReader("short"))
				sent.Write([]byte("short"))
			}
			resp := do(t, client, req)
			got := sha256.New()
			n, err := io.Copy(got, resp.Body)
			if err != nil || version == 2 && n != size {
				t.Errorf("%d bytes, %v", n, err)
			}
			if sum := fmt.Sprintf("%x", got.Sum(nil)); sum != fmt.Sprintf("%x", sent.Sum(nil)) || resp.Trailer.Get("X-Sum") != sum {
				t.Errorf("sum %s, trailer %v", sum, resp.Trailer)
			}
			if resp.ProtoMajor != version || resp.TLS == nil {
				t.Errorf("HTTP/%d", resp.ProtoMajor)
			}
			_ = resp.Body.Close()
			want(t, b, 5, 1, 0)
		})
	}
}

// A connection that is handed over stays the caller's, both ways.
func TestUpgradesPassThrough(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, in, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close() //nolint:errcheck // the client closes first
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		line, err := in.ReadString('\n')
		check.NoError(t, err)
		_, _ = io.WriteString(c, "you said "+line)
	}))
	defer server.Close()
	b := open(t, readSpec)
	client := &http.Client{Transport: meter(t, b, budgethttp.Options{Operation: "read"})}
	req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil))(t)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	resp := do(t, client, req)
	defer resp.Body.Close() //nolint:errcheck // it is of no interest
	want(t, b, 5, 1, 0)
	conn, ok := resp.Body.(io.ReadWriteCloser)
	if resp.StatusCode != http.StatusSwitchingProtocols || !ok {
		t.Fatalf("status %d, a body %T", resp.StatusCode, resp.Body)
	}
	must.Get(io.WriteString(conn, "hello\n"))(t)
	if line, err := bufio.NewReader(conn).ReadString('\n'); line != "you said hello\n" || err != nil {
		t.Errorf("%q, %v", line, err)
	}
}

// A body that the server does not want is not sent.
func TestExpectContinuePassesThrough(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wanted" {
			text, err := io.ReadAll(r.Body)
			if string(text) != "body" || err != nil {
				t.Errorf("%q, %v", text, err)
			}
			return
		}
		w.WriteHeader(http.StatusExpectationFailed)
	}))
	defer server.Close()
	b := open(t, readSpec)
	client := &http.Client{Transport: meter(t, b, budgethttp.Options{Operation: "read"})}
	for path, status := range map[string]int{"/wanted": 200, "/unwanted": 417} {
		req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+path, io.NopCloser(strings.NewReader("body"))))(t)
		req.Header.Set("Expect", "100-continue")
		resp := do(t, client, req)
		_ = resp.Body.Close()
		check.Equal(t, resp.StatusCode, status, path, resp.Status)
	}
	want(t, b, 10, 2, 0)
}

// A body that the client has not finished sending when the answer is there goes on.
func TestAnEarlyAnswerDoesNotCutTheRequest(t *testing.T) {
	var got atomic.Int64
	done := make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(done)
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		n, err := io.Copy(io.Discard, r.Body)
		check.NoError(t, err)
		got.Store(n)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	b := open(t, readSpec)
	client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: server.Client().Transport, Operation: "read"})}
	out, in := io.Pipe()
	resp, err := client.Post(server.URL, "text/plain", out)
	if err != nil {
		t.Fatal(err)
	}
	want(t, b, 5, 1, 0)
	check.NoError(t, check.Err(io.WriteString(in, "still coming")))
	_ = in.Close()
	if text, err := io.ReadAll(resp.Body); len(text) > 0 || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	_ = resp.Body.Close()
	<-done
	check.Equal(t, got.Load(), 12, "the server … bytes")
}

// A request keeps nothing of the context it came with, however it ends.
func TestContextsAreLeft(t *testing.T) {
	for _, version := range []int{1, 2} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if r.URL.Path != "/empty" {
				_, _ = io.WriteString(w, "body")
			}
		}))
		server.EnableHTTP2 = version == 2
		server.StartTLS()
		defer server.Close()
		var sent []*http.Request
		base := roundTrip(func(req *http.Request) (*http.Response, error) {
			sent = append(sent, req)
			return server.Client().Transport.RoundTrip(req)
		})
		b := open(t, readSpec)
		client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: base, Operation: "read"})}
		for _, path := range []string{"/", "/empty"} {
			for _, body := range []string{"", "body"} {
				resp, err := client.Post(server.URL+path, "text/plain", strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
			}
		}
		closed := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+refusedAddress(t), nil))(t)
		if _, err := client.Do(closed); err == nil { //nolint:bodyclose // there is none
			t.Error("somebody listens")
		}
		for i, req := range sent {
			if req.Context().Err() == nil {
				t.Errorf("HTTP/%d: request %d has kept its context", version, i)
			}
		}
	}
}

// A response's request can be sent again: its context does not end with the body. It is the
// base's own where the base names another. A response of no request has no verdict.
func TestRequestOfAResponse(t *testing.T) {
	b := open(t, readSpec)
	other := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://elsewhere/", nil))(t)
	for _, named := range []*http.Request{nil, other} {
		base := roundTrip(func(req *http.Request) (*http.Response, error) {
			resp := &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("body")), Request: req}
			if named != nil {
				resp.Request = named
			}
			return resp, nil
		})
		req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://upstream/", nil))(t)
		resp := must.Get(meter(t, b, budgethttp.Options{Base: base, Operation: "read"}).RoundTrip(req))(t) //nolint:bodyclose // it is closed below
		readAll(t, resp, "body")
		must.Do(t, resp.Body.Close())
		check.NoError(t, resp.Request.Context().Err())
		if own := resp.Request.URL == req.URL; own != (named == nil) {
			t.Errorf("the base named %v: the response's request is to %s", named, resp.Request.URL)
		}
	}
	for _, none := range []*http.Response{nil, {}} {
		if v, ok := budgethttp.VerdictOf(none); ok {
			t.Errorf("a verdict %+v", v)
		}
	}
}
