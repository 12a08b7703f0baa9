package alert

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/secret"
)

// sender delivers messages. It reads secrets when it sends, and shows none.
type sender struct {
	env    func(string) (string, bool)
	client *http.Client
	tls    *tls.Config
}

func newSender(env func(string) (string, bool), tls *tls.Config) *sender {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 1
	return &sender{env: env, tls: tls, client: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// laterError is the error of a server that asks to be left alone for a while.
type laterError struct {
	error
	after time.Duration
}

func (e *laterError) Unwrap() error { return e.error }

// deliver sends a message once. The error has no secret in it.
func (s *sender) deliver(ctx context.Context, a config.Alert, m Message) error {
	ctx, cancel := context.WithTimeout(ctx, sendTakes)
	defer cancel()
	if len(a.MailTo) > 0 {
		return s.mail(ctx, a, m)
	}
	address, err := readSecret(s.env, a.URLEnv, a.URLFile, "the address of alert "+a.Name)
	if err != nil {
		return err
	}
	to, err := parseAddress(address)
	if err != nil {
		return fmt.Errorf("alert %s: %w", a.Name, err)
	}
	header := http.Header{}
	switch a.As {
	case "healthchecks":
		switch {
		case m.Kind == kindTest:
			to = to.JoinPath("log")
		case m.Phase == Begin:
			to = to.JoinPath("fail")
		case m.Others > 0: // it is not well yet
			to = to.JoinPath("log")
		}
	case "ntfy":
		header.Set("Title", m.title())
		header.Set("Tags", map[Phase]string{Begin: "warning", End: "white_check_mark"}[m.Phase])
	}
	body, contentType := m.body(a.As)
	header.Set("Content-Type", contentType)
	return s.post(ctx, to, header, body)
}

// post sends a body once, and reads no more of the answer than its status.
func (s *sender) post(ctx context.Context, to *url.URL, header http.Header, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), bytes.NewReader(body))
	if err != nil {
		return errors.New("the address is not one that a request can be sent to")
	}
	request.Header = header
	request.Header.Set("User-Agent", "quotactl")
	response, err := s.client.Do(request)
	if err != nil {
		return explain(ctx, err, to)
	}
	defer func() { _ = response.Body.Close() }()                      // it was only read
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 64<<10)) // so that the connection serves again
	switch response.StatusCode / 100 {
	case 2:
		return nil
	case 3:
		return fmt.Errorf("status %d: the address has moved; write the new one", response.StatusCode)
	}
	err = fmt.Errorf("status %d", response.StatusCode)
	if after := budgethttp.RetryAfter(response.Header); after > 0 {
		return &laterError{err, after}
	}
	return err
}

// readSecret reads a secret where the configuration says; what names it.
func readSecret(env func(string) (string, bool), inEnv, inFile, what string) (string, error) {
	value := ""
	if inEnv != "" {
		value, _ = env(inEnv)
	} else {
		text, err := config.ReadSecret(inFile)
		if err != nil {
			return "", fmt.Errorf("read %s: %w; write the file", what, err)
		}
		value = string(text)
	}
	if value = strings.TrimSpace(value); value != "" {
		return value, nil
	}
	if inEnv != "" {
		return "", fmt.Errorf("%s: the environment has no %s: set it where the daemon runs", what, config.VariableText(inEnv))
	}
	return "", fmt.Errorf("%s: %s is empty: write it", what, inFile)
}

// parseAddress parses a secret address; the error does not show it.
func parseAddress(address string) (*url.URL, error) {
	to, err := url.Parse(address)
	if err != nil || to.Scheme != "http" && to.Scheme != "https" || to.Host == "" {
		return nil, errors.New("the address does not begin with https:// or http:// and a host: write the whole address")
	}
	return to, nil
}

// explain says why a request failed, without the address: that is a secret.
func explain(ctx context.Context, err error, to *url.URL) error {
	var dns *net.DNSError
	var certificate *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var number syscall.Errno
	var timeout net.Error
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("no answer within %s", sendTakes)
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &dns):
		return errors.New("the host was not found")
	case errors.As(err, &host):
		return errors.New("the certificate is for another host")
	case errors.As(err, &certificate), errors.As(err, &authority):
		return errors.New("the certificate cannot be verified")
	case errors.As(err, &number):
		return errors.New(number.Error())
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the connection was closed without an answer")
	}
	var inner *url.Error
	if errors.As(err, &inner) {
		err = inner.Err
	}
	return errors.New(secret.Hider("", to.String(), to.Host, to.Hostname(), to.RequestURI())(err.Error()))
}
