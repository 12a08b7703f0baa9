package gateway

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget/budgethttp"
)

var usualPorts = map[string]string{"http": "80", "https": "443"} // by scheme

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
	full := net.JoinHostPort(t.host, strconv.Itoa(t.port))
	return strings.TrimSuffix(full, ":"+usualPorts[t.scheme])
}

// isNamed reports whether a Host header names the target.
func (t target) isNamed(host string) bool {
	port := (&url.URL{Host: host}).Port()
	return budgethttp.HostName(host) == t.host && (port == "" || port == strconv.Itoa(t.port))
}

type targetKey struct{} // of the target of a connection, in its context

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
	at := net.JoinHostPort(proxy.Hostname(), cmp.Or(proxy.Port(), usualPorts[proxy.Scheme]))
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
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address, Header: proxyHeader(user)}
	_ = conn.SetDeadline(time.Now().Add(dialTime)) // else Write fails, too
	err := req.Write(conn)
	from := bufio.NewReader(conn)
	var resp *http.Response
	if err == nil {
		resp, err = http.ReadResponse(from, req) //nolint:bodyclose // a tunnel has none
	}
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	if err != nil {
		closeAll(conn)
		return nil, fmt.Errorf("connect to %s through the proxy in the environment: %w", address, err)
	}
	return &peeked{Conn: conn, reader: from}, conn.SetDeadline(time.Time{})
}

// proxyHeader tells a proxy whose a request is; nil: nobody's.
func proxyHeader(user *url.Userinfo) http.Header {
	req := http.Request{Header: http.Header{}}
	if user == nil {
		return req.Header
	}
	password, _ := user.Password()
	req.SetBasicAuth(user.Username(), password)
	return http.Header{"Proxy-Authorization": req.Header["Authorization"]}
}
