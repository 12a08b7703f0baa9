package gateway

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"
)

// target is where the calls of an opened connection go.
type target struct {
	scheme string // "https" or "http"
	host   string // the name that the program asked for, in small letters
	port   int
	dial   string // host:port to dial
}

// authority is the host of the target's addresses.
func (t target) authority() string {
	if t.scheme == "https" && t.port == 443 || t.scheme == "http" && t.port == 80 {
		return hostIn(t.host)
	}
	return net.JoinHostPort(t.host, strconv.Itoa(t.port))
}

// isNamed reports whether a Host header names the target.
func (t target) isNamed(host string) bool {
	port := (&url.URL{Host: host}).Port()
	return hostName(host) == t.host && (port == "" || port == strconv.Itoa(t.port))
}

func hostIn(host string) string {
	if ip := net.ParseIP(host); ip != nil && ip.To4() == nil {
		return "[" + host + "]"
	}
	return host
}

type targetKey struct{}

// targetOf is the target of a request's connection.
func targetOf(ctx context.Context) target {
	t, _ := ctx.Value(targetKey{}).(target)
	return t
}

// errWantsCertificate ends a handshake with an upstream that asks for a client certificate,
// which only the program has.
var errWantsCertificate = errors.New("it asks for a client certificate")

// wire sends requests to upstreams.
type wire struct {
	proxy func(*url.URL) (*url.URL, error) // the one that was set before; its URL is nil: none
	usual *http.Transport

	mu    sync.Mutex                 // guards all below
	apart map[target]*http.Transport // for those who ask one address for the name of another
}

// mostApart bounds the transports that are kept for such targets.
const mostApart = 64

func newWire(roots *x509.CertPool, proxy func(*url.URL) (*url.URL, error)) *wire {
	w := &wire{proxy: proxy, apart: map[target]*http.Transport{}}
	w.usual = &http.Transport{
		Proxy:       func(req *http.Request) (*url.URL, error) { return proxy(req.URL) },
		DialContext: (&net.Dialer{Timeout: 30 * time.Second}).DialContext,
		TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, RootCAs: roots,
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return nil, errWantsCertificate },
		},
		TLSHandshakeTimeout: 30 * time.Second, ExpectContinueTimeout: time.Second, IdleConnTimeout: 90 * time.Second,
		MaxIdleConnsPerHost: 256, DisableCompression: true, ForceAttemptHTTP2: true,
	}
	return w
}

// RoundTrip implements http.RoundTripper.
func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	return w.to(targetOf(req.Context())).RoundTrip(req)
}

// to is the transport to a target.
func (w *wire) to(t target) *http.Transport {
	if t.dial == "" || t.dial == net.JoinHostPort(t.host, strconv.Itoa(t.port)) {
		return w.usual
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	one := w.apart[t]
	if one == nil {
		for key, old := range w.apart { // any one
			if len(w.apart) < mostApart {
				break
			}
			old.CloseIdleConnections()
			delete(w.apart, key)
		}
		one = w.usual.Clone()
		one.Proxy = nil
		one.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return w.dial(ctx, t.dial) }
		w.apart[t] = one
	}
	return one
}

func (w *wire) close() {
	w.usual.CloseIdleConnections()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range w.apart {
		one.CloseIdleConnections()
	}
}

// dial connects to an address for a tunnel, through the proxy that was set before, if any.
func (w *wire) dial(ctx context.Context, address string) (net.Conn, error) {
	proxy, err := w.proxy(&url.URL{Scheme: "https", Host: address})
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: 30 * time.Second}
	if proxy == nil {
		return dialer.DialContext(ctx, "tcp", address)
	}
	port := proxy.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[proxy.Scheme]
	}
	at := net.JoinHostPort(proxy.Hostname(), port)
	var conn net.Conn
	switch proxy.Scheme {
	case "http":
		conn, err = dialer.DialContext(ctx, "tcp", at)
	case "https":
		conn, err = (&tls.Dialer{NetDialer: dialer, Config: w.usual.TLSClientConfig.Clone()}).DialContext(ctx, "tcp", at)
	default:
		return nil, fmt.Errorf("connect to %s: the proxy in the environment is a %s proxy; only http and https are supported", address, proxy.Scheme)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to the proxy in the environment: %w", err)
	}
	return connectThrough(conn, proxy.User, address)
}

// connectThrough asks a proxy for a tunnel.
func connectThrough(conn net.Conn, user *url.Userinfo, address string) (net.Conn, error) {
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address, Header: http.Header{}}
	if user != nil {
		password, _ := user.Password()
		req.SetBasicAuth(user.Username(), password)
		req.Header.Set("Proxy-Authorization", req.Header.Get("Authorization"))
		req.Header.Del("Authorization")
	}
	from := bufio.NewReader(conn)
	err := req.Write(conn)
	var resp *http.Response
	if err == nil {
		resp, err = http.ReadResponse(from, req) //nolint:bodyclose // a tunnel has none
	}
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	if err != nil {
		_ = conn.Close() // the error says more
		return nil, fmt.Errorf("connect to %s through the proxy in the environment: %w", address, err)
	}
	return &peeked{Conn: conn, reader: from}, nil
}
