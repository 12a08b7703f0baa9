package gateway

import (
	"bufio"
	"context"
	"crypto/subtle"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/quotactl/quotactl/budget/budgethttp"
)

// proxyUser is the user in the proxy's address; the token is the password.
const proxyUser = "meter"

// handshakeTime bounds a program's TLS handshake with the proxy.
const handshakeTime = 30 * time.Second

// mostHandshakes is how many of them are under way at once, each for handshakeTurn at most: many
// more would keep the decisions of the store waiting for the processor until they count as late.
const (
	mostHandshakes = 16
	handshakeTurn  = time.Second
)

// front is the proxy that programs ask: for tunnels, and for plain http.
type front struct {
	*Gateway
	inner *handler
}

// ServeHTTP implements http.Handler. A connection that was handed over is opened if it has a
// target; else it asks the proxy, and needs no token.
func (f *front) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	t, wasHanded := req.Context().Value(targetKey{}).(target)
	if t.host != "" {
		f.inner.serve(w, req, t)
		return
	}
	if !wasHanded && !f.hasToken(req) {
		w.Header().Set("Proxy-Authenticate", `Basic realm="quotactl"`)
		http.Error(w, "quotactl: this proxy serves the command that quotactl meter has started", http.StatusProxyAuthRequired)
		return
	}
	req.Header.Del("Proxy-Authorization")
	req.Header.Del("Proxy-Connection")
	switch {
	case req.Method == http.MethodConnect:
		f.connect(w, req)
	case (req.URL.Scheme == "http" || req.URL.Scheme == "https") && req.URL.Host != "":
		f.whole(w, req)
	case req.URL.Path == aboutPath && req.Method == http.MethodGet:
		f.about(w, req)
	default:
		http.Error(w, "quotactl: this is a proxy: ask it for a whole address, or to CONNECT", http.StatusBadRequest)
	}
}

func (f *front) hasToken(req *http.Request) bool {
	scheme, sent, _ := strings.Cut(req.Header.Get("Proxy-Authorization"), " ")
	want := base64.StdEncoding.EncodeToString([]byte(proxyUser + ":" + f.token))
	return strings.EqualFold(scheme, "Basic") && subtle.ConstantTimeCompare([]byte(sent), []byte(want)) == 1
}

// whole serves a request for a whole address. Some programs ask so for https, too.
func (f *front) whole(w http.ResponseWriter, req *http.Request) {
	t, err := targetAt(req.URL.Scheme, req.URL.Host)
	if err != nil {
		http.Error(w, "quotactl: "+err.Error(), http.StatusBadRequest)
		return
	}
	req.Host = req.URL.Host
	f.inner.serve(w, req, t)
}

// targetAt is the target of an authority.
func targetAt(scheme, authority string) (target, error) {
	t := target{scheme: scheme, host: budgethttp.HostName(authority)}
	_, port, err := net.SplitHostPort(authority)
	if err != nil { // it has none
		port = usualPorts[scheme]
	}
	if t.port, err = strconv.Atoi(port); err != nil || t.port < 1 || t.port > 65535 {
		return t, fmt.Errorf("%q is not a port", port)
	}
	if t.host == "" {
		return t, fmt.Errorf("%q names no host", authority)
	}
	t.dial = net.JoinHostPort(t.host, strconv.Itoa(t.port))
	return t, nil
}

// connect opens a tunnel, or serves what comes through it.
func (f *front) connect(w http.ResponseWriter, req *http.Request) {
	t, err := targetAt("https", req.RequestURI)
	if err != nil {
		http.Error(w, "quotactl: "+err.Error(), http.StatusBadRequest)
		return
	}
	var ahead net.Conn // of a host that is opened the server is dialled when there is a request
	if !f.owners.opens(t.host, t.port) {
		if ahead, err = f.wire.dial(req.Context(), t.dial); err != nil {
			http.Error(w, "quotactl: "+err.Error(), http.StatusBadGateway)
			return
		}
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, "quotactl: CONNECT needs HTTP/1.1", http.StatusHTTPVersionNotSupported)
		return
	}
	if _, err = io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err == nil {
		f.open(conn, buffered.Reader, t, ahead)
	} else {
		closeAll(conn, ahead)
	}
}

// open serves a program's connection: as a server if it is for a host that is opened, else as
// a tunnel. ahead is the connection to the server; nil: there is none yet.
func (f *front) open(conn net.Conn, from *bufio.Reader, t target, ahead net.Conn) {
	back := &backward{program: conn}
	if ahead != nil { // the server may speak first
		back.from(ahead)
	}
	p, says, name, err := peek(f.ctx, conn, from)
	if name == "" && ahead == nil {
		name = t.host
	}
	switch {
	case says == speaksTLS && err == nil && f.owners.opens(name, t.port) && back.silence():
		closeAll(ahead)
		f.serveTLS(p, name, t)
		return
	case says == speaksHTTP && ahead == nil:
		p.target = t
		p.target.scheme = "http"
		f.hand(p)
		return
	}
	if err != nil && (ahead == nil || back.silence()) { // the program is gone, and nothing has passed
		closeAll(conn, ahead)
		return
	}
	f.tally.tunnel(t.authority(), f.owners.tunnels(t.host))
	defer context.AfterFunc(f.ctx, func() { closeAll(conn) })()
	if ahead == nil {
		if ahead, err = f.wire.dial(f.ctx, t.dial); err == nil {
			back.from(ahead)
		}
	}
	if ahead != nil {
		forward(ahead, p)
		<-back.ended
	}
	closeAll(conn, ahead)
}

// serveTLS serves a connection in the name of the host that it asks for.
func (f *front) serveTLS(p *peeked, name string, t target) {
	p.target = f.wire.named(t, name)
	offer := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return f.authority.leaf(name) },
	}
	if p.offersHTTP { // a program that offers HTTP/1.0 alone would be refused
		offer.NextProtos = []string{"h2", "http/1.1"}
	}
	conn := tls.Server(p, offer)
	select {
	case f.handshakes <- struct{}{}:
	case <-f.ctx.Done():
		closeAll(conn)
		return
	}
	leave := sync.OnceFunc(func() { <-f.handshakes })
	defer time.AfterFunc(handshakeTurn, leave).Stop() // a program that says nothing more holds up few
	ctx, cancel := context.WithTimeout(f.ctx, handshakeTime)
	defer cancel()
	err := conn.HandshakeContext(ctx)
	switch {
	case err == nil:
		f.tally.connection(name, false)
		leave() // once it is counted
		f.hand(conn)
		return
	case p.tooOld:
		f.tally.failed(name, "the program offers only versions of TLS before 1.2")
	case errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET): // also of a program that has connected ahead
		f.tally.connection(name, false)
	case ctx.Err() == nil: // an alert, which not all send as crypto/tls reads it
		f.tally.count(func(all *Tally) { countNamed(all.Broken, name) })
	}
	f.options.Log.Debug("a program broke a handshake off", "host", name, "error", err)
	leave() // as above
	closeAll(conn)
}

// hand gives a connection to the server.
func (f *front) hand(conn net.Conn) {
	select {
	case f.opened.conns <- conn:
	case <-f.ctx.Done():
		closeAll(conn)
	}
}

func closeAll(all ...io.Closer) {
	for _, one := range all {
		if one != nil {
			_ = one.Close() // nothing is lost
		}
	}
}
