package alert

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/certtest"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

const mailPassword = "p4ss-w0rd"

// mailServer is a real SMTP server that keeps the mails that it takes.
type mailServer struct {
	mu       sync.Mutex
	mails    []string
	to       []string
	loggedIn int
	refuses  error
	unknown  string // a recipient that it refuses
	code     int    // by this code; 0: 550
}

type mailSession struct {
	server *mailServer
	needs  bool // a login
	known  bool
}

func (s *mailServer) session(needs bool) smtp.BackendFunc {
	return func(*smtp.Conn) (smtp.Session, error) { return &mailSession{server: s, needs: needs}, nil }
}

func (s *mailSession) AuthMechanisms() []string { return []string{sasl.Plain} }

func (s *mailSession) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if user != "quotactl" || password != mailPassword {
			return &smtp.SMTPError{Code: 535, Message: "wrong password " + password}
		}
		s.known = true
		s.server.mu.Lock()
		defer s.server.mu.Unlock()
		s.server.loggedIn++
		return nil
	}), nil
}

func (s *mailSession) Mail(string, *smtp.MailOptions) error {
	if s.needs && !s.known {
		return errors.New("log in first")
	}
	return s.server.refuses
}

func (s *mailSession) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	if to == s.server.unknown {
		return &smtp.SMTPError{Code: cmp.Or(s.server.code, 550), Message: "no such user"}
	}
	s.server.to = append(s.server.to, to)
	return nil
}

func (s *mailSession) Data(r io.Reader) error {
	text, err := io.ReadAll(r)
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	s.server.mails = append(s.server.mails, string(text))
	return err
}

func (s *mailSession) Reset()        {}
func (s *mailSession) Logout() error { return nil }

// startMail starts a server on 127.0.0.1: with security as in a configuration.
func startMail(t *testing.T, security string) (*mailServer, config.Alert, *tls.Config) {
	t.Helper()
	cert, key := certtest.SelfSigned(t, t.TempDir())
	pair := must.Get(tls.LoadX509KeyPair(cert, key))(t)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(must.Get(os.ReadFile(cert))(t))
	taken := &mailServer{}
	server := smtp.NewServer(taken.session(security != "none"))
	server.Domain = "127.0.0.1"
	server.ErrorLog = log.New(io.Discard, "", 0)
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	port := l.Addr().(*net.TCPAddr).Port
	switch security {
	case "tls":
		l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{pair}})
	case "starttls":
		server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // until it is closed
	}()
	t.Cleanup(func() {
		must.Do(t, server.Close())
		<-done
	})
	a := config.Alert{Name: "night", MailTo: []string{"ops@example.org", "night@example.org"}, SMTP: config.SMTP{Host: "127.0.0.1", Port: port, Security: security, From: "quotactl@example.org"}}
	if security != "none" {
		a.SMTP.User, a.SMTP.PasswordEnv = "quotactl", "PW"
	}
	return taken, a, &tls.Config{RootCAs: roots}
}

func passwordIs(password string) func(string) (string, bool) {
	return func(name string) (string, bool) { return password, name == "PW" }
}

func TestMails(t *testing.T) {
	for _, security := range []string{"none", "starttls", "tls"} {
		t.Run(security, func(t *testing.T) {
			t.Parallel()
			server, a, roots := startMail(t, security)
			m := newMessage(a.Name, subject{Kind: kindExhausted, Budget: "shop/main", Limit: "daily"}, turn{Begin, 1, 1, "shop/main is exhausted – 0 left\n.\n"})
			check.NoError(t, newSender(passwordIs(mailPassword), roots).deliver(t.Context(), a, m), "a mail")
			check.EqualSlices(t, server.to, []string{"ops@example.org", "night@example.org"}, "to")
			check.Equal(t, len(server.mails), 1, "mails")
			for _, part := range []string{"Subject: quotactl: exhausted shop/main daily", "From: <quotactl@example.org>", "Message-ID: <" + m.ID + "@quotactl>", "shop/main is exhausted", "limit: daily"} {
				check.Contains(t, server.mails[0], part, "the mail")
			}
			if security == "none" {
				return
			}
			check.Equal(t, server.loggedIn, 1, "logins")
			err := newSender(passwordIs("wr0ng-p4ss"), roots).deliver(t.Context(), a, m)
			if err == nil || strings.Contains(err.Error(), "wr0ng") {
				t.Errorf("with a wrong password: %v", err)
			}
			if err := newSender(passwordIs(mailPassword), nil).deliver(t.Context(), a, m); err == nil {
				t.Error("a certificate of nobody known was taken")
			}
			server.refuses = &smtp.SMTPError{Code: 452, Message: "full"}
			if err := newSender(passwordIs(mailPassword), roots).deliver(t.Context(), a, m); err == nil || !strings.Contains(err.Error(), "full") {
				t.Errorf("a server that refuses: %v", err)
			}
			check.Equal(t, len(server.mails), 1, "mails")
		})
	}
}

// A server that offers no TLS gets neither password nor mail.
func TestMailsNeverInTheClear(t *testing.T) {
	t.Parallel()
	server, a, roots := startMail(t, "none")
	a.SMTP.Security, a.SMTP.User, a.SMTP.PasswordEnv = "starttls", "quotactl", "PW"
	if err := newSender(passwordIs(mailPassword), roots).deliver(t.Context(), a, Message{ID: "1", Text: "x"}); err == nil {
		t.Error("it was sent in the clear")
	}
	a.SMTP.User = ""
	if err := newSender(passwordIs(mailPassword), roots).deliver(t.Context(), a, Message{ID: "1", Text: "x"}); err == nil {
		t.Error("without a login it was sent in the clear")
	}
	check.Equal(t, len(server.mails)+server.loggedIn, 0, "mails and logins")
}

// A recipient that the server refuses does not keep the others from their mail, and they get it
// once.
func TestMailsDespiteARefusedRecipient(t *testing.T) {
	t.Parallel()
	server, a, roots := startMail(t, "none")
	server.unknown = "ops@example.org"
	err := newSender(passwordIs(""), roots).deliver(t.Context(), a, Message{ID: "1", Text: "x"})
	var partly *partlyError
	if !errors.As(err, &partly) || !strings.Contains(err.Error(), "no such user") {
		t.Fatalf("%v", err)
	}
	check.Equal(t, partly.final, true, "refused for good")
	check.Equal(t, len(server.mails), 1, "mails")
	check.Equal(t, server.to[len(server.to)-1], "night@example.org", "to")
}

// A recipient that the server refuses for now gets the mail later; those who have it do not get it
// again. One that is refused for good is given up.
func TestMailsToTheRest(t *testing.T) {
	t.Parallel()
	server, a, roots := startMail(t, "none")
	server.unknown, server.code = "ops@example.org", 450
	s := newSender(passwordIs(""), roots)
	r := &record{}
	r.add(pending{Message: Message{ID: "1", Text: "x"}}, 0)
	deliver := func() *partlyError {
		var partly *partlyError
		p := r.Messages[0]
		p.rest = p.To
		if err := s.deliver(t.Context(), a, p.Message); !errors.As(err, &partly) {
			must.Do(t, err)
			return nil
		}
		r.part("1", partly, 0)
		return partly
	}
	check.Equal(t, deliver().final, false, "refused for good")
	check.EqualSlices(t, r.Messages[0].To, []string{"ops@example.org"}, "the rest")
	check.Equal(t, r.GivenUp, 0, "given up")
	server.mu.Lock()
	server.unknown = ""
	server.mu.Unlock()
	check.Equal(t, deliver() == nil, true, "delivered to all")
	check.Equal(t, len(server.mails), 2, "mails")
	check.Equal(t, server.to[len(server.to)-1], "ops@example.org", "the last went to")
	r.part("1", &partlyError{errors.New("no such user"), a.MailTo[:1], true}, 0)
	check.Equal(t, r.GivenUp, 1, "given up")
}

// A server that takes a mail and hangs up has taken it.
func TestMailsToAServerThatHangsUp(t *testing.T) {
	t.Parallel()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer func() { must.Do(t, l.Close()) }()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		lines := bufio.NewScanner(conn)
		_, _ = io.WriteString(conn, "220 hello\r\n")
		for data := false; lines.Scan(); {
			switch line := lines.Text(); {
			case data && line == ".":
				_, _ = io.WriteString(conn, "250 taken\r\n")
				return
			case data:
			case line == "DATA":
				data = true
				_, _ = io.WriteString(conn, "354 go on\r\n")
			default:
				_, _ = io.WriteString(conn, "250 ok\r\n")
			}
		}
	}()
	a := config.Alert{Name: "night", MailTo: []string{"ops@example.org"}, SMTP: config.SMTP{Host: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port, Security: "none", From: "quotactl@example.org"}}
	check.NoError(t, newSender(passwordIs(""), nil).deliver(t.Context(), a, Message{ID: "1", Text: "x"}), "a mail")
}

// A server that says nothing, from its greeting on or later, holds a try no longer than its time.
func TestMailServersThatHang(t *testing.T) {
	for _, security := range []string{"none", "starttls", "tls"} {
		for _, greeting := range []string{"", "220-one line of it\r\n", "220 ready\r\n"} {
			t.Run(security+" "+strings.TrimSpace(greeting), func(t *testing.T) {
				t.Parallel()
				l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
				ctx, cancel := context.WithCancel(t.Context())
				closed := make(chan error, 1)
				go func() {
					defer cancel()
					conn, err := l.Accept()
					if err != nil {
						closed <- err
						return
					}
					_, _ = io.WriteString(conn, greeting)
					if security == "tls" || greeting == "220 ready\r\n" { // the client says something
						_, _ = conn.Read(make([]byte, 1))
					}
					cancel()
					_ = conn.SetReadDeadline(time.Now().Add(5 * time.Minute)) // the test fails then
					_, err = io.Copy(io.Discard, conn)
					_ = conn.Close()
					closed <- err
				}()
				a := config.Alert{Name: "night", MailTo: []string{"ops@example.org"}, SMTP: config.SMTP{Host: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port, Security: security, From: "quotactl@example.org"}}
				err := newSender(func(string) (string, bool) { return "", false }, nil).deliver(ctx, a, Message{ID: "x", Kind: kindTest})
				check.Equal(t, err != nil, true, "the try failed")
				if err := <-closed; !errors.Is(err, syscall.ECONNRESET) {
					check.NoError(t, err, "the client closes the connection")
				}
				must.Do(t, l.Close())
			})
		}
	}
}
