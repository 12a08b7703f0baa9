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
	"time"
)

// target is where the calls of an opened connection go.
type target struct {
	scheme string // "https" or "http"
	host   string // the name that the program asked for, in small letters
	port   int
	dial   string          // host:port to dial
	apart  *http.Transport // dials that for another name; nil: the usual one serves
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
}

// dialTime bounds how long it takes to connect, a proxy's answer included.
const dialTime = 30 * time.Second

func newWire(roots *x509.CertPool, proxy func(*url.URL) (*url.URL, error)) *wire {
	return &wire{proxy: proxy, usual: &http.Transport{
		Proxy:       func(req *http.Request) (*url.URL, error) { return proxy(req.URL) },
		DialContext: (&net.Dialer{Timeout: dialTime}).DialContext,
		TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, RootCAs: roots,
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return nil, errWantsCertificate },
		},
		TLSHandshakeTimeout: 30 * time.Second, ExpectContinueTimeout: time.Second, IdleConnTimeout: 90 * time.Second,
		MaxIdleConnsPerHost: 256, DisableCompression: true, ForceAttemptHTTP2: true,
	}}
}

// RoundTrip implements http.RoundTripper.
func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	if t := targetOf(req.Context()); t.apart != nil {
		return t.apart.RoundTrip(req)
	}
	return w.usual.RoundTrip(req)
}

// named is the target of a connection whose program asks the target's address for a host of
// another name.
func (w *wire) named(t target, host string) target {
	if t.host != host {
		t.apart = w.usual.Clone()
		t.apart.Proxy = nil
		t.apart.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return w.dial(ctx, t.dial) }
	}
	t.scheme, t.host = "https", host
	return t
}

// dial connects to an address for a tunnel, through the proxy that was set before, if any.
func (w *wire) dial(ctx context.Context, address string) (net.Conn, error) {
	proxy, err := w.proxy(&url.URL{Scheme: "https", Host: address})
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: dialTime}
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
	err := conn.SetDeadline(time.Now().Add(dialTime))
	if err == nil {
		err = req.Write(conn)
	}
	var resp *http.Response
	if err == nil {
		resp, err = http.ReadResponse(from, req) //nolint:bodyclose // a tunnel has none
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
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
