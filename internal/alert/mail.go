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

// mail sends a message by mail once.
func (s *sender) mail(ctx context.Context, a config.Alert, m Message) error {
	letter := mail.NewMsg()
	if err := errors.Join(letter.From(a.SMTP.From), letter.To(a.MailTo...)); err != nil {
		return fmt.Errorf("alert %s: %w", a.Name, err)
	}
	letter.Subject(m.title())
	letter.SetMessageIDWithValue(m.ID + "@quotactl")
	letter.SetDateWithValue(m.At.Time)
	letter.SetBodyString(mail.TypeTextPlain, m.text())
	options := []mail.Option{mail.WithPort(a.SMTP.Port), mail.WithTimeout(sendTakes), mail.WithoutNoop()}
	config := &tls.Config{}
	if s.tls != nil {
		config = s.tls.Clone()
	}
	config.ServerName = a.SMTP.Host
	config.MinVersion = tls.VersionTLS12
	options = append(options, mail.WithTLSConfig(config))
	switch a.SMTP.Security {
	case "tls":
		options = append(options, mail.WithSSL())
	case "none":
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
	var timeout net.Error
	switch {
	case err == nil:
		return nil
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
