package redisstore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/quotactl/quotactl/budget/driver"
)

// fault turns a failed command's error into one for the caller, with advice.
func (s *Store) fault(doing string, err error) error {
	wrap := func(sentinel error, advice string) error {
		return fmt.Errorf("%s in Redis: %w: %s: %w", doing, sentinel, advice, err)
	}
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, redis.ErrClosed):
		return fmt.Errorf("%s in Redis: %w", doing, driver.ErrClosed)
	}
	if s.cluster && hasAnyCode(err, moving) {
		return fmt.Errorf("%s in Redis: %w: its slot is moving: %w", doing, driver.ErrUnavailable, err)
	}
	if advice := misconfigured(err); advice != "" {
		return wrap(driver.ErrStoreConfig, advice)
	}
	if advice := passingAdvice(err); advice != "" {
		return wrap(driver.ErrUnavailable, advice)
	}
	return fmt.Errorf("%s in Redis: %w: %w", doing, driver.ErrUnavailable, err)
}

const (
	giveUser       = "correct the user, the password, password_env or password_file"
	givePassword   = "give the password, by password_env or password_file"
	dropPassword   = "the server has no password: leave out password_env or password_file, and the password in the URL"
	grantCommands  = "the user lacks a permission; grant it the commands and keys that docs/redis.md lists"
	rightDatabase  = "the server has no such database; correct the number in the URL, or raise the server's databases"
	otherServer    = "the server, or a proxy before it, does not know a command; use Redis 6.2 or later, or Valkey 7.2 or later, and no proxy that lacks scripts"
	useCluster     = "the server is part of a cluster; connect with redis+cluster://"
	keysApart      = "a proxy or cluster keeps a budget's keys apart; connect with redis+cluster://"
	foreignKey     = "a key of this prefix is not quotactl's; choose another prefix"
	protectedMode  = "the server is in protected mode; give it a password"
	noTLS          = "the server does not speak TLS; connect with redis://, or have it use TLS"
	refusedTLS     = "the server refuses this client's TLS, or asks for a certificate, which quotactl does not send; change the server's TLS settings"
	badCertificate = "its certificate is not trusted here, or is for another name; replace it, or have this machine trust its issuer"
	oldCertificate = "its certificate has expired or is not valid yet; renew it, or correct this machine's clock"
	otherKind      = "the server is neither Redis nor Valkey, or a proxy changes its answers; correct the host and port of the URL"
	noRight        = "this user may not connect; let it write to the socket, or let it through the firewall"
)

// misconfigurations are the answers that stay the same until a person changes something, by code and
// by words: a server has no code of its own for them, and a proxy has none at all.
var misconfigurations = []struct{ code, words, advice string }{
	{"WRONGPASS", "", giveUser},
	{"NOAUTH", "", givePassword},
	{"NOPERM", "", grantCommands},
	{"WRONGTYPE", "", foreignKey},
	{"CROSSSLOT", "", keysApart},
	{"MOVED", "", useCluster},
	{"DENIED", "", protectedMode},
	{"", "unauthenticated", givePassword}, // the server's answer to a long call, instead of NOAUTH
	{"", "without any password configured", dropPassword},
	{"", "can't run this command", grantCommands},
	{"", "no permission", grantCommands},
	{"", "permissions to", grantCommands},
	{"", "invalid password", giveUser}, // twemproxy
	{"", "db index", rightDatabase},
	{"", "select is not allowed", rightDatabase},
	{"", "unknown command", otherServer},
	{"", "unknown redis command", otherServer},
	{"", "unimplemented command", otherServer},
	{"", "invalid request", otherServer},
	{"", "is disabled", otherServer},
	{"", "unsupported command", otherServer}, // Envoy
	{"", "command not support", otherServer}, // Tencent's, Alibaba's
	{"", "not support for", otherServer},
	{"", "is not supported", otherServer},
	{"", "is not allowed", otherServer}, // Codis, and a server without a command in scripts
	{"", "is not available", otherServer},
	{"", "undeclared key", otherServer},
	{"", "cluster support disabled", "it is not a cluster; connect with redis://"},
}

// misconfigured returns advice if an error shows that the configuration does not fit the server or
// this machine, so that nothing but a change of one of them helps; else "".
func misconfigured(err error) string {
	if isAnswer(err) {
		text := err.Error()
		lower := strings.ToLower(text)
		for _, known := range misconfigurations {
			// The error of a script may contain the code of a command in it.
			if known.code != "" && (hasCode(err, known.code) || strings.Contains(text, known.code+" ")) ||
				known.words != "" && strings.Contains(lower, known.words) {
				return known.advice
			}
		}
	}
	var plain tls.RecordHeaderError
	var alert tls.AlertError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.Is(err, errUnknownMaster):
		return "the sentinels know no such master; correct its name in the URL"
	case errors.As(err, &plain):
		return noTLS
	case errors.As(err, &alert) && alert != alertInternal:
		return refusedTLS
	case errors.As(err, &certificate) && !expired(err):
		return badCertificate
	case notConnected(err) && errors.Is(err, fs.ErrPermission):
		return noRight
	case isForeign(err):
		return otherKind
	}
	return ""
}

// errForeign is what a server of another kind sends.
var errForeign = errors.New("this is no answer of Redis")

// isForeign reports whether something was answered, and is no reply of a script: another kind of server
// sent it, the client library cannot read it, or it is no list. A connection that was cut is an outage.
func isForeign(err error) bool {
	var number *strconv.NumError
	return errors.Is(err, errForeign) || errors.Is(err, redis.Nil) || errors.As(err, &number) || unreadable().MatchString(err.Error())
}

// unreadable are the client library's words.
var unreadable = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile("redis: (can't parse|invalid reply|unexpected type)")
})

// alertInternal is the alert of a TLS server that failed, and may not the next time.
const alertInternal = tls.AlertError(80)

// expired reports a certificate whose time is over or has not begun: it is mostly renewed without
// anybody's change here, or this machine's clock is not set yet.
func expired(err error) bool {
	var invalid x509.CertificateInvalidError
	return errors.As(err, &invalid) && invalid.Reason == x509.Expired
}

// passingAdvice returns advice on a fault that may pass by itself, if there is more to say of it than
// the error does; else "".
func passingAdvice(err error) string {
	if expired(err) {
		return oldCertificate
	}
	return driver.Shortage("", err)
}

// lostAnswer says that an attempt may have been applied, and that no time was left to find
// out.
func lostAnswer(doing string) error {
	return fmt.Errorf("%s in Redis: %w: an answer was lost, and the time ran out before another arrived; send the same id again to learn the outcome", doing, driver.ErrUnavailable)
}

// notCharged wraps the error of a decision that has charged nothing, and keeps its text.
type notCharged struct{ error }

// Unwrap lets errors.Is see budget.ErrNotCharged beside the error.
func (e notCharged) Unwrap() []error { return []error{e.error, driver.ErrNotCharged} }

// isAnswer reports whether an error is the server's answer, not a network fault.
func isAnswer(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}

// damaged reports a ledger whose parts disagree; what says how.
func (s *Store) damaged(name, what string) error {
	return fmt.Errorf("ledger of %s in Redis: %w: %s; keys were evicted or deleted: set maxmemory-policy noeviction, and restore the keys %s, or delete them all once the longest window has passed",
		name, driver.ErrDamaged, what, s.key(name, "*"))
}

// newer reports a ledger of a later format.
func (s *Store) newer(name, version string) error {
	return fmt.Errorf("ledger of %s in Redis: %w: it has format %s, this version knows %s: use a newer quotactl, or another prefix",
		name, driver.ErrStoreConfig, version, holdingFormat)
}
