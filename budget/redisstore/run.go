package redisstore

import (
	"context"
	"crypto/sha1" //nolint:gosec // the server names scripts by SHA-1
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quotactl/quotactl/lua"
)

// script is a text and the name the server knows it by.
type script struct{ text, sha string }

func newScript(text string) script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see the import
	return script{text, hex.EncodeToString(sum[:])}
}

type scripts struct {
	charge, finish, spent               script
	accept, forget, probe, doctor       script
	jobBegin, jobRead, jobRenew, jobEnd script
}

func newScripts(l lua.Scripts) scripts {
	return scripts{
		charge: newScript(l.Charge), finish: newScript(l.Finish), spent: newScript(l.Spent), accept: newScript(l.Accept), forget: newScript(l.Forget), probe: newScript(l.Probe), doctor: newScript(l.Doctor),
		jobBegin: newScript(l.JobBegin), jobRead: newScript(l.JobRead), jobRenew: newScript(l.JobRenew), jobEnd: newScript(l.JobEnd),
	}
}

// sentOnce is a command that no loop of the client library sends a second time,
// the cluster's included.
type sentOnce struct{ *redis.Cmd }

// NoRetry tells the library so.
func (sentOnce) NoRetry() bool { return true }

// A retry waits from firstWait, doubled each time, up to lastWait.
const (
	firstWait = time.Millisecond
	lastWait  = 50 * time.Millisecond
)

// attempts is how many times a script is sent within the store's timeout when no
// reply comes: a reply that was lost is asked for again, on another connection.
// The server that is only slow runs it no more often than that.
const attempts = 2.5

// run runs a script, sent again within the context's deadline when its reply does
// not come in an attempt's time, or the fault is one that passes. That is safe for
// every script: charges carry ids, and the others say the same when they are said
// twice.
func (s *Store) run(ctx context.Context, sc script, keys []string, args ...any) *redis.Cmd {
	if s.testClock != nil {
		args = append(args, strconv.FormatInt(s.testClock(), 10))
	}
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		cmd, timedOut := s.attempt(ctx, sc, keys, args)
		switch {
		case timedOut && ctx.Err() == nil:
			continue
		case !passes(cmd.Err()):
			return cmd
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return cmd
		}
	}
}

// attempt sends a script once, and tells whether its time ran out.
func (s *Store) attempt(ctx context.Context, sc script, keys []string, args []any) (cmd *redis.Cmd, timedOut bool) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(float64(s.timeout)/attempts))
	defer cancel()
	cmd = s.send(ctx, "evalsha", sc.sha, keys, args)
	if hasCode(cmd.Err(), "NOSCRIPT") { // evicted, flushed, or a new server
		cmd = s.send(ctx, "eval", sc.text, keys, args)
	}
	var timeout net.Error
	return cmd, errors.Is(cmd.Err(), context.DeadlineExceeded) || errors.As(cmd.Err(), &timeout) && timeout.Timeout()
}

// send sends one command.
func (s *Store) send(ctx context.Context, verb, text string, keys []string, args []any) *redis.Cmd {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, verb, text, len(keys))
	for _, key := range keys {
		all = append(all, key)
	}
	cmd := redis.NewCmd(ctx, append(all, args...)...)
	cmd.SetFirstKeyPos(3)
	defer func() {
		// The library takes the lengths in a reply on trust.
		if problem := recover(); problem != nil {
			cmd.SetErr(fmt.Errorf("read the reply: %v", problem))
		}
	}()
	if err := s.client.Process(ctx, sentOnce{cmd}); err != nil && cmd.Err() == nil {
		cmd.SetErr(err)
	}
	return cmd
}

// passes reports whether a fault may be gone in a moment: a connection that the
// server or a middlebox had closed, a failover, a resharding. A refused
// connection is not among them: it costs nothing to know and is answered at
// once.
func passes(err error) bool {
	switch {
	case err == nil, errors.Is(err, redis.ErrClosed):
		return false
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return true
	case strings.Contains(err.Error(), "connection reset by peer"), strings.Contains(err.Error(), "broken pipe"):
		return true
	}
	for _, code := range []string{"LOADING", "READONLY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN"} {
		if hasCode(err, code) {
			return true
		}
	}
	return false
}

// hasCode reports whether the server answered with an error of this code.
func hasCode(err error, code string) bool {
	var answer redis.Error
	return errors.As(err, &answer) && (answer.Error() == code || strings.HasPrefix(answer.Error(), code+" "))
}
