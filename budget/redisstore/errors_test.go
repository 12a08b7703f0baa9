package redisstore

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quotactl/quotactl/budget/driver"
)

// answerError is a server's answer.
type answerError string

func (e answerError) Error() string { return string(e) }

func (answerError) RedisError() {}

// dialing is an error of connecting.
func dialing(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }

// What may pass by itself is a store out of reach; what stays is a fault of the configuration.
func TestWhatPasses(t *testing.T) {
	certificate := func(reason x509.InvalidReason) error {
		return &tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Cert: &x509.Certificate{}, Reason: reason}}
	}
	for says, all := range map[string][]error{
		otherServer: {
			answerError("ERR unknown command 'evalsha', with args beginning with: 'x'"), answerError("ERR unknown command `EVALSHA`"),
			answerError("unsupported command 'evalsha'"), answerError("ERR unsupported command"), answerError("ERR command not support"),
			answerError("ERR command eval not support for normal user"), answerError("ERR handle request, command 'EVAL' is not allowed"),
			answerError("ERR This Redis command is not allowed from script script: 1, on @user_script:1."),
			answerError("ERR Command is not available: 'EVAL'"), answerError("ERR script tried accessing undeclared key, script id: x"),
			answerError("ERR EVALSHA is not supported"), answerError("ERR unknown redis command 'evalsha'"), answerError("ERR unimplemented command"),
			answerError("invalid request"), answerError(`ERR The command "EVALSHA" is disabled`),
		},
		giveUser:       {answerError("ERR invalid password"), answerError("WRONGPASS invalid username-password pair or user is disabled.")},
		dropPassword:   {answerError("ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?")},
		protectedMode:  {answerError("DENIED Redis is running in protected mode because protected mode is enabled")},
		rightDatabase:  {answerError("ERR DB index is out of range"), answerError("ERR SELECT is not allowed in cluster mode")},
		badCertificate: {certificate(x509.NotAuthorizedToSign), &tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: &x509.Certificate{}, Host: "h"}}, &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}},
		refusedTLS:     {dialing(tls.AlertError(40)), &net.OpError{Op: "remote error", Err: tls.AlertError(116)}, tls.AlertError(70)},
		noTLS:          {dialing(tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"})},
		noRight:        {dialing(&fs.PathError{Op: "connect", Err: syscall.EACCES}), dialing(syscall.EPERM)},
	} {
		for _, err := range all {
			got := (&Store{}).fault("charge", err)
			if !errors.Is(got, driver.ErrStoreConfig) || errors.Is(got, driver.ErrUnavailable) || !strings.Contains(got.Error(), says) {
				t.Errorf("%v: %v, want ErrStoreConfig that says %q", err, got, says)
			}
		}
	}
	for says, all := range map[string][]error{
		"": {
			answerError("OOM command not allowed when used memory > 'maxmemory'."), answerError("LOADING Redis is loading the dataset in memory"),
			answerError("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that may modify the data set are disabled"),
			answerError("BUSY Redis is busy running a script."), answerError("READONLY You can't write against a read only replica."),
			answerError("ERR max number of clients reached"), answerError("NOREPLICAS Not enough good replicas to write."),
			answerError("no upstream host"), answerError("upstream failure"), answerError("ERR no server connection available"),
			dialing(syscall.ECONNREFUSED), dialing(syscall.EHOSTUNREACH), dialing(syscall.ENETUNREACH), dialing(syscall.ENOENT),
			dialing(&net.DNSError{Err: "no such host", Name: "redis", IsNotFound: true}), dialing(&net.DNSError{Err: "server misbehaving", IsTemporary: true}),
			tls.AlertError(80),
		},
		oldCertificate: {certificate(x509.Expired)},
		"ulimit -n":    {dialing(syscall.EMFILE)},
		"fs.file-max":  {dialing(syscall.ENFILE)},
		"no free port": {dialing(syscall.EADDRNOTAVAIL)},
		"memory":       {dialing(syscall.ENOBUFS), syscall.ENOMEM},
	} {
		for _, err := range all {
			got := (&Store{}).fault("charge", err)
			if errors.Is(got, driver.ErrStoreConfig) || !errors.Is(got, driver.ErrUnavailable) || !strings.Contains(got.Error(), says) {
				t.Errorf("%v: %v, want ErrUnavailable that says %q", err, got, says)
			}
		}
	}
}

// What to do about a server fits what it answered; an error that says so itself gets no other advice.
func TestDoctorsAdviceFitsTheAnswer(t *testing.T) {
	const reach, runs = "make sure that the server runs", "the server runs: "
	for says, all := range map[string][]error{
		"":    {answerError("NOAUTH Authentication required."), answerError("NOPERM x"), answerError("WRONGPASS x"), errForeign, redis.Nil, dialing(syscall.EMFILE)},
		runs:  {answerError("ERR max number of clients reached"), answerError("BUSY Redis is busy running a script."), answerError("LOADING x")},
		reach: {dialing(syscall.ECONNREFUSED), io.EOF, os.ErrDeadlineExceeded},
	} {
		for _, err := range all {
			s := &Store{pace: &pace{}, timeout: DefaultTimeout}
			if got := s.adviceOn(s.fault("ask the clock", err)); !strings.HasPrefix(got, says) || says == "" && got != "" {
				t.Errorf("%v: %q, want %q", err, got, says)
			}
		}
	}
}

// A server that is far away runs: doctor says how far, and which timeout would do.
func TestDoctorNamesTheDistance(t *testing.T) {
	for near, says := range map[time.Duration]string{60 * time.Millisecond: "60ms away", time.Millisecond: "make sure that the server runs"} {
		s := &Store{pace: &pace{}, timeout: DefaultTimeout}
		s.pace.connected(near)
		list := s.unreached(t.Context(), s.fault("ask the clock", dialing(syscall.ETIMEDOUT)))
		if len(list) != 1 || !strings.Contains(list[0].Advice, says) || strings.Contains(list[0].Advice, "360ms") != (near == 60*time.Millisecond) {
			t.Errorf("%s: %+v, want %q", near, list, says)
		}
	}
}
