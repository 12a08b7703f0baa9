package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/serve"
)

// Listen says where the daemon listens and who may ask. It comes from flags, not from the
// configuration: whoever starts the daemon decides who may spend.
type Listen struct {
	At                          string // a port on this machine, host:port or unix:/path; empty: nowhere
	TokenEnv, TokenFile         string // where the token is
	ReadTokenEnv, ReadTokenFile string // where the token is that may look and not spend
	Cert, Key                   string // PEM files
	AllowActions                bool   // who has signed in with the token may act on the page
}

// Endpoint is where the daemon listens.
type Endpoint struct {
	network   string // tcp or unix
	address   string
	loopback  bool // tcp, reachable only from this machine
	token     string
	readToken string      // may look and not spend; empty: there is none
	secure    *tls.Config // nil: no TLS
	act       bool        // the page has actions
}

// EndpointError says what is wrong with a [Listen].
type EndpointError struct{ err error }

func (e *EndpointError) Error() string { return e.err.Error() }

// Unwrap lets errors.Is and errors.As see the cause.
func (e *EndpointError) Unwrap() error { return e.err }

func wrongEndpoint(format string, args ...any) error {
	return &EndpointError{fmt.Errorf(format, args...)}
}

// schemeUnix is the prefix of a Unix socket's address.
const schemeUnix = "unix:"

// Endpoint checks the flags, and reads the token and the certificate; nil if the daemon
// is not to listen. An address that other machines can reach needs a token and TLS. The
// error is an [*EndpointError].
func (f *Listen) Endpoint(env func(string) (string, bool)) (*Endpoint, error) {
	if f.At == "" {
		if *f != (Listen{}) {
			return nil, wrongEndpoint("a token, a certificate and --allow-actions are only for listening: give --listen too")
		}
		return nil, nil
	}
	e := &Endpoint{}
	if path, unix := strings.CutPrefix(f.At, schemeUnix); unix {
		if path == "" {
			return nil, wrongEndpoint("--listen %q: write a path after unix:", f.At)
		}
		e.network, e.address = "unix", path
	} else {
		address, err := listenAddress(f.At)
		if err != nil {
			return nil, err
		}
		host, _, _ := net.SplitHostPort(address) // listenAddress has joined it
		e.network, e.address, e.loopback = "tcp", address, serve.IsLoopback(host)
	}
	var err error
	if e.token, err = readToken(env, "--listen-token", f.TokenEnv, f.TokenFile); err != nil {
		return nil, err
	}
	if e.readToken, err = readToken(env, "--listen-read-token", f.ReadTokenEnv, f.ReadTokenFile); err != nil {
		return nil, err
	}
	switch e.act = f.AllowActions; {
	case e.token != "":
	case e.readToken != "":
		return nil, wrongEndpoint("--listen-read-token-env and --listen-read-token-file need a token too, or everybody could spend: give --listen-token-env or --listen-token-file")
	case e.act:
		return nil, wrongEndpoint("--allow-actions needs a token, to sign in with: give --listen-token-env or --listen-token-file")
	}
	if e.token != "" && e.token == e.readToken {
		return nil, wrongEndpoint("the token and the read token of --listen are the same, so whoever may look could spend: make another read token")
	}
	if e.secure, err = f.tls(e.network); err != nil {
		return nil, err
	}
	if e.network == "tcp" && !e.loopback && (e.token == "" || e.secure == nil) {
		return nil, wrongEndpoint("--listen %s: other machines can reach this address and could spend units: give --listen-token-env or --listen-token-file, and --listen-cert and --listen-key; or listen only on this machine", f.At)
	}
	return e, nil
}

// listenAddress completes an address; without a host it becomes 127.0.0.1.
func listenAddress(text string) (string, error) {
	address := text
	if !strings.Contains(text, ":") {
		address = ":" + text
	}
	host, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil || port == "" {
		return "", wrongEndpoint("--listen %q: write a port from 0 to 65535, host:port or unix:/path", text)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

// isToken reports whether a token fits in a header and is too long to guess.
func isToken(text string) bool {
	return len(text) >= 16 && len(text) <= 512 && !strings.ContainsFunc(text, func(r rune) bool { return r < '!' || r > '~' })
}

// readToken reads the token of two flags, which begin alike; empty if neither is given. No
// message shows it.
func readToken(env func(string) (string, bool), flag, variable, file string) (string, error) {
	var token string
	switch {
	case variable != "" && file != "":
		return "", wrongEndpoint("%s-env and %s-file are both given: give one", flag, flag)
	case variable != "":
		value, ok := env(variable)
		if !ok {
			return "", wrongEndpoint("%s-env: the environment has no variable of that name; set it", flag)
		}
		token = value
	case file != "":
		value, err := config.ReadSecret(file)
		if err != nil {
			return "", wrongEndpoint("%s-file: %w", flag, err)
		}
		token = strings.TrimRight(string(value), "\r\n")
	default:
		return "", nil
	}
	if !isToken(token) {
		return "", wrongEndpoint("the token of %s-env or %s-file: use 16 to 512 printable ASCII characters without spaces", flag, flag)
	}
	return token, nil
}

// tls reads the certificate; nil where none is given.
func (f *Listen) tls(network string) (*tls.Config, error) {
	switch {
	case f.Cert == "" && f.Key == "":
		return nil, nil
	case f.Cert == "" || f.Key == "":
		return nil, wrongEndpoint("--listen-cert and --listen-key go together: give both")
	case network == "unix":
		return nil, wrongEndpoint("--listen-cert: a Unix socket takes no certificate; leave it out")
	}
	cert, err := config.ReadSecret(f.Cert)
	if err != nil {
		return nil, wrongEndpoint("--listen-cert: %w", err)
	}
	key, err := config.ReadSecret(f.Key)
	if err != nil {
		return nil, wrongEndpoint("--listen-key: %w", err)
	}
	certificate, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, wrongEndpoint("--listen-cert, --listen-key: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}}, nil
}

// errNotLoopback reports that localhost does not resolve to this machine.
var errNotLoopback = errors.New("localhost resolves to another machine's address: listen on 127.0.0.1 or [::1]")

// open makes the endpoint's socket.
func (e *Endpoint) open(ctx context.Context) (net.Listener, error) {
	if e.network == "unix" {
		return listenUnix(ctx, e.address)
	}
	var config net.ListenConfig
	socket, err := config.Listen(ctx, e.network, e.address)
	if err != nil {
		return nil, fmt.Errorf("listen: %w: give --listen another address", err)
	}
	return socket, nil
}

// called is the endpoint's address for clients, once its socket is open.
func (e *Endpoint) called(socket net.Listener) (string, error) {
	if e.network == "unix" {
		return schemeUnix + e.address, nil
	}
	if at, ok := socket.Addr().(*net.TCPAddr); e.loopback && (!ok || !at.IP.IsLoopback()) {
		return "", wrongEndpoint("--listen %s: %w", e.address, errNotLoopback)
	}
	scheme := "http://"
	if e.secure != nil {
		scheme = "https://"
	}
	return scheme + socket.Addr().String(), nil
}
