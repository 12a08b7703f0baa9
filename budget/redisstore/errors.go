package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

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
	for _, known := range []struct{ code, advice string }{
		{"WRONGPASS", "correct the user, the password, password_env or password_file"},
		{"NOAUTH", "give the password, by password_env or password_file"},
		{"NOPERM", "the user lacks a permission; grant it the commands and keys that docs/redis.md lists"},
		{"WRONGTYPE", "a key of this prefix is not quotactl's; choose another prefix"},
		{"CROSSSLOT", "a proxy or cluster keeps a budget's keys apart; connect with redis+cluster://"},
		{"MOVED", "the server is part of a cluster; connect with redis+cluster://"},
	} {
		// The error of a script may contain the code of a command in it.
		if hasCode(err, known.code) || isAnswer(err) && strings.Contains(err.Error(), known.code+" ") {
			return wrap(driver.ErrStoreConfig, known.advice)
		}
	}
	switch {
	case isAnswer(err) && strings.Contains(err.Error(), "unauthenticated"): // the server's answer to a long call, instead of NOAUTH
		return wrap(driver.ErrStoreConfig, "give the password, by password_env or password_file")
	case isAnswer(err) && (strings.Contains(err.Error(), "can't run this command") || strings.Contains(err.Error(), "No permission") || strings.Contains(err.Error(), "permissions to")):
		return wrap(driver.ErrStoreConfig, "the user lacks a permission; grant it the commands and keys that docs/redis.md lists")
	case isAnswer(err) && (strings.Contains(err.Error(), "DB index") || strings.Contains(err.Error(), "SELECT is not allowed")):
		return wrap(driver.ErrStoreConfig, "the server has no such database; correct the number in the URL, or raise the server's databases")
	case isAnswer(err) && strings.Contains(strings.ToLower(err.Error()), "unknown command"):
		return wrap(driver.ErrStoreConfig, "the server does not know a command; use Redis 6.2 or later, or Valkey 7.2 or later")
	}
	if advice := wrongServer(err); advice != "" {
		return wrap(driver.ErrStoreConfig, advice)
	}
	return fmt.Errorf("%s in Redis: %w: %w", doing, driver.ErrUnavailable, err)
}

// wrongServer returns advice if an error shows that the URL does not fit the server, else "".
func wrongServer(err error) string {
	var certificate *tls.CertificateVerificationError
	text := err.Error()
	switch {
	case strings.Contains(text, "cluster support disabled"):
		return "it is not a cluster; connect with redis://"
	case errors.Is(err, errUnknownMaster):
		return "the sentinels know no such master; correct its name in the URL"
	case errors.As(err, &certificate):
		return "its certificate is not trusted here, or is for another name; replace it, or have this machine trust its issuer"
	}
	return ""
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
