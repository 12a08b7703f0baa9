package look

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/screen"
	"github.com/quotactl/quotactl/internal/serve"
)

// Server is a daemon that is asked over HTTP what its store knows, by those who may not, or
// cannot, read the store. Make one with [NewServer].
type Server struct {
	base  string
	token string
	http  *http.Client
}

// The bounds of an answer.
const (
	serverTime = 30 * time.Second
	mostAnswer = 64 << 20 // bytes
)

// ErrServer is the error of a daemon that refuses, with what it says.
var ErrServer = errors.New("the daemon refuses")

// NewServer is the daemon at an address, as http://localhost:8080, https://HOST:PORT or
// unix:/path; the token, its own or its read token, may be empty.
func NewServer(address, token string) (*Server, error) {
	s := &Server{base: strings.TrimRight(address, "/"), token: token}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}
	if path, unix := strings.CutPrefix(address, "unix:"); unix {
		s.base = "http://localhost"
		transport.Proxy = nil
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		}
	} else if u, err := url.Parse(address); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return nil, errors.New("write the daemon's address as http://localhost:8080, https://HOST:PORT or unix:/path")
	} else if token != "" && u.Scheme == "http" && !serve.IsLoopback(u.Hostname()) {
		return nil, errors.New("a token that goes to another machine over http:// can be read on its way: use https://")
	}
	s.http = &http.Client{Transport: transport, Timeout: serverTime, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return s, nil
}

// Overview is what the daemon's status says of the budgets named, of all for no names, and the
// same as it said it, in JSON. The error is budget.ErrUnavailable if it cannot be reached, else
// may be [ErrServer].
func (s *Server) Overview(ctx context.Context, names []string) (Overview, json.RawMessage, error) {
	at := s.base + "/v1/overview"
	if len(names) > 0 {
		at += "?" + url.Values{"budget": names}.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return Overview{}, nil, fmt.Errorf("ask the daemon: %w", err)
	}
	if s.token != "" {
		request.Header.Set("Authorization", "Bearer "+s.token)
	}
	response, err := s.http.Do(request)
	var untrusted *tls.CertificateVerificationError
	if errors.As(err, &untrusted) {
		return Overview{}, nil, fmt.Errorf("ask the daemon: its certificate is not trusted here: %w; if it is of your own authority, set SSL_CERT_FILE to that authority's certificate", untrusted)
	}
	if err != nil {
		return Overview{}, nil, fmt.Errorf("%w: ask the daemon: %w", budget.ErrUnavailable, err)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, mostAnswer))
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return Overview{}, nil, fmt.Errorf("%w: read the daemon's answer: %w", budget.ErrUnavailable, err)
	}
	body = clean(body)
	if response.StatusCode != http.StatusOK {
		return Overview{}, nil, refusal(response.StatusCode, body)
	}
	seen, err := Decode(body)
	if err != nil {
		return Overview{}, nil, fmt.Errorf("read the daemon's answer: %w; is %s a daemon of quotactl, of this version?", err, s.base)
	}
	return seen, body, nil
}

var escapes = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\\(?:u[0-9a-fA-F]{4}|.)`) })

// clean replaces the control characters in the strings of a JSON text, which a terminal would
// obey. The daemon is another machine's, and much that it shows was written by others.
func clean(text []byte) []byte {
	text = escapes().ReplaceAllFunc(text, func(escape []byte) []byte {
		switch escape[1] {
		case 'b', 'f', 'n', 'r', 't':
			return []byte("?")
		case 'u':
			if code, err := strconv.ParseUint(string(escape[2:]), 16, 16); err == nil && screen.Obeyed(rune(code)) {
				return []byte("?")
			}
		}
		return escape
	})
	return bytes.Map(func(r rune) rune {
		if screen.Obeyed(r) && r != '\n' && r != '\r' && r != '\t' { // those stand between values
			return '?'
		}
		return r
	}, text)
}

// refusal is the error of an answer other than an overview.
func refusal(status int, body []byte) error {
	var problem struct{ Detail, Reason string }
	if json.Unmarshal(body, &problem) != nil || problem.Detail == "" {
		return fmt.Errorf("%w: status %d; is it a daemon of quotactl, of this version?", ErrServer, status)
	}
	if problem.Reason == "no_token" {
		return fmt.Errorf("%w: %s; give the token's place with --token-env or --token-file", ErrServer, problem.Detail)
	}
	if problem.Reason == "unavailable" {
		return fmt.Errorf("%w: %s", budget.ErrUnavailable, problem.Detail)
	}
	return fmt.Errorf("%w: %s", ErrServer, problem.Detail)
}

// Decode reads what [Overview.JSON] makes.
func Decode(text []byte) (Overview, error) {
	var told answer.Overview
	if err := json.Unmarshal(text, &told); err != nil {
		return Overview{}, err
	}
	if time.Time(told.At).IsZero() {
		return Overview{}, errors.New("it does not say when its numbers were read")
	}
	for _, h := range told.Alerts {
		if h.Failing > 0 && h.Since == nil {
			return Overview{}, fmt.Errorf("alert %s: it fails since no instant", h.Alert)
		}
	}
	seen := Overview{At: time.Time(told.At), Store: told.Store, Daemons: told.Daemons, Alerts: told.Alerts, Aside: told.Aside, Ahead: told.Ahead()}
	var err error
	if seen.Budgets, err = told.Statuses(); err != nil {
		return Overview{}, err
	}
	seen.Jobs, err = told.States()
	return seen, err
}
