package alert

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/wneessen/go-mail"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/secret"
)

// partlyError is the error of a message that some of its recipients got, and others did not.
type partlyError struct {
	error
	rest  []string // who did not get it
	final bool     // the server refused each of these for good
}

func (e *partlyError) Unwrap() error { return e.error }

// newLetter makes the mail of a message to some of its recipients.
func newLetter(a config.Alert, m Message, to ...string) (*mail.Msg, error) {
	letter := mail.NewMsg()
	if err := errors.Join(letter.From(a.SMTP.From), letter.To(to...)); err != nil {
		return nil, fmt.Errorf("alert %s: %w", a.Name, err)
	}
	letter.Subject(m.title())
	letter.SetMessageIDWithValue(m.ID + "@quotactl")
	letter.SetDateWithValue(m.At.Time)
	letter.SetBodyString(mail.TypeTextPlain, m.text())
	return letter, nil
}

// mail sends a message by mail once: to all recipients at once, or if the server refuses one of
// them, to each. The error is a [partlyError] if some got it.
func (s *sender) mail(ctx context.Context, a config.Alert, m Message) error {
	recipients := a.MailTo
	if len(m.rest) > 0 {
		recipients = m.rest
	}
	letter, err := newLetter(a, m, recipients...)
	if err != nil {
		return err
	}
	options := []mail.Option{mail.WithPort(a.SMTP.Port), mail.WithTimeout(sendTakes), mail.WithoutNoop()}
	config := &tls.Config{}
	if s.tls != nil {
		config = s.tls.Clone()
	}
	config.ServerName = a.SMTP.Host
	config.MinVersion = tls.VersionTLS12
	options = append(options, mail.WithTLSConfig(config))
	overTLS := a.SMTP.Security == "tls"
	options = append(options, mail.WithDialContextFunc(dialUntil(ctx, overTLS, config)))
	switch {
	case overTLS: // the client sees that the connection is; WithSSL would take an own dialer's for plain
		options = append(options, mail.WithTLSPolicy(mail.TLSOpportunistic))
	case a.SMTP.Security == "none":
		options = append(options, mail.WithTLSPolicy(mail.NoTLS))
	default:
		options = append(options, mail.WithTLSPolicy(mail.TLSMandatory))
	}
	password := ""
	if a.SMTP.User != "" {
		var err error
		if password, err = readSecret(s.env, a.SMTP.PasswordEnv, a.SMTP.PasswordFile, "the mail password of alert "+a.Name); err != nil {
			return err
		}
		options = append(options, mail.WithSMTPAuth(mail.SMTPAuthAutoDiscover), mail.WithUsername(a.SMTP.User), mail.WithPassword(password))
	}
	client, err := mail.NewClient(a.SMTP.Host, options...)
	if err == nil {
		err = client.DialAndSendWithContext(ctx, letter)
	}
	if letter.IsDelivered() { // what the server says afterwards does not take that back
		return nil
	}
	var rest []string
	final := true
	var refused *mail.SendError
	if errors.As(err, &refused) && refused.Reason == mail.ErrSMTPRcptTo && len(recipients) > 1 {
		var letters []*mail.Msg
		for _, to := range recipients {
			if letter, err = newLetter(a, m, to); err != nil {
				return err
			}
			letters = append(letters, letter)
		}
		err = client.DialAndSendWithContext(ctx, letters...)
		for i, letter := range letters {
			if !letter.IsDelivered() {
				rest = append(rest, recipients[i])
				final = final && errors.As(letter.SendError(), &refused) && refused.Reason == mail.ErrSMTPRcptTo && !refused.IsTemp()
			}
		}
		if len(rest) == 0 {
			return nil
		}
	}
	err = explainMail(ctx, a, err, password)
	if len(rest) > 0 && len(rest) < len(recipients) {
		return &partlyError{err, rest, final}
	}
	return err
}

// dialUntil connects, and closes the connection once ctx ends: the client heeds it only until it is
// connected, and would wait for a greeting as long as the server likes. Over TLS, the server's
// certificate is verified before anything is said.
func dialUntil(ctx context.Context, overTLS bool, config *tls.Config) mail.DialContextFunc {
	return func(dialing context.Context, network, address string) (net.Conn, error) {
		connected, err := (&net.Dialer{}).DialContext(dialing, network, address)
		if err != nil {
			return nil, err
		}
		context.AfterFunc(ctx, func() { _ = connected.Close() })
		if !overTLS {
			return connected, nil
		}
		encrypted := tls.Client(connected, config)
		if err := encrypted.HandshakeContext(dialing); err != nil {
			return nil, errors.Join(err, connected.Close())
		}
		return encrypted, nil
	}
}

// explainMail says why a mail was not sent, without the password.
func explainMail(ctx context.Context, a config.Alert, err error, password string) error {
	var timeout net.Error
	switch {
	case ctx.Err() == nil && errors.As(err, &timeout) && timeout.Timeout(), errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("the mail server %s did not answer within %s", a.SMTP.Host, sendTakes)
	}
	return errors.New(secret.Redact(strings.ReplaceAll(err.Error(), "\n", "; "), password))
}

// text is the body of a mail.
func (m Message) text() string {
	var b strings.Builder
	b.WriteString(m.Text + "\n\n")
	for _, line := range []struct {
		name  string
		value string
	}{{"kind", m.Kind}, {"phase", string(m.Phase)}, {"budget", string(m.Budget)}, {"limit", string(m.Limit)}, {"job", string(m.Job)}, {"at", instant(m.At.Time)}, {"id", m.ID}} {
		if line.value != "" {
			fmt.Fprintf(&b, "%s: %s\n", line.name, line.value)
		}
	}
	return b.String()
}
