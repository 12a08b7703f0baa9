package redisstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quotactl/quotactl/lua"
)

// sentOnce is a command that the client library never sends a second time; the cluster
// client does not either.
type sentOnce struct{ *redis.Cmd }

// NoRetry is what the library checks.
func (sentOnce) NoRetry() bool { return true }

// Retries wait firstWait, then twice as long each time, up to lastWait.
const (
	firstWait = time.Millisecond
	lastWait  = 50 * time.Millisecond
)

// run runs a script whose arguments do not depend on the attempt.
func (s *Store) run(ctx context.Context, sc lua.Script, keys []string, args ...any) *redis.Cmd {
	cmd, _ := s.attempts(ctx, sc, boxed(keys), func(time.Time) []any { return args })
	return cmd
}

// attempts runs a script. Within the context's deadline it sends the script again, on
// another connection, if an attempt gets no answer in its share of the time or fails with
// a fault that passes. That is safe for every script: charges and swaps carry ids, and the
// others have the same effect when they run twice.
//
// args is called for each attempt with the instant at which that attempt is given up. A
// script that decides refuses past this instant, so an attempt has no effect once the next
// one is under way, and the answer to the next one holds for both.
//
// With a follower, a failed attempt waits for a look at where the servers are. Then a
// connection that cannot be made, and a master that was cut off from its replicas, count
// as faults that pass, once.
//
// unsure is true if an earlier attempt got no answer and may have been applied.
func (s *Store) attempts(ctx context.Context, sc lua.Script, keys []any, args func(until time.Time) []any) (cmd *redis.Cmd, unsure bool) {
	return s.attemptsAfter(ctx, nil, sc, keys, args)
}

// attemptsAfter is attempts that send what is to be finished before, in one round trip with the
// script; nil is nothing.
func (s *Store) attemptsAfter(ctx context.Context, before *finishing, sc lua.Script, keys []any, args func(until time.Time) []any) (cmd *redis.Cmd, unsure bool) {
	end, _ := ctx.Deadline() // Store.begin has set it
	s.follow.begins(ctx)
	s.connect(ctx)
	whole := time.Until(end)
	share, answered, followed := s.pace.share(whole, s.follow == nil), false, false
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		began := time.Now()
		until := shareEnd(began, share, end)
		cmd = s.once(ctx, until, before, sc, keys, args(until))
		err := cmd.Err()
		if err == nil || isAnswer(err) {
			answered = true
			s.follow.answered()
		}
		switch {
		case !followed && (notConnected(err) || hasCode(err, "NOREPLICAS")):
			followed = true
			if !s.follow.failed(ctx) {
				return cmd, unsure
			}
		case !s.passes(err):
			return cmd, unsure
		default:
			unsure = unsure || mayBeApplied(err)
			s.follow.failed(ctx)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
			if time.Now().Before(end) {
				continue
			}
		case <-ctx.Done():
			timer.Stop()
		}
		if !answered && timedOut(err) {
			s.pace.tooSlow(whole)
		}
		return cmd, unsure
	}
}

// boxed are keys as arguments of a command.
func boxed(keys []string) []any {
	list := make([]any, len(keys))
	for i, key := range keys {
		list[i] = key
	}
	return list
}

// attempt is the context of one attempt that has a connection: its deadline, which the client
// library sets on the connection, ends it, and it needs no timer.
type attempt struct {
	context.Context
	until time.Time
}

// Deadline is what the client library reads.
func (a attempt) Deadline() (time.Time, bool) { return a.until, true }

// once is one attempt, given up at until.
func (s *Store) once(ctx context.Context, until time.Time, before *finishing, sc lua.Script, keys, args []any) *redis.Cmd {
	if s.hasIdle() {
		ctx = attempt{ctx, until}
	} else { // the library waits for a connection, or for a server's address, until the context is done
		bounded, cancel := context.WithDeadline(ctx, until)
		defer cancel()
		ctx = bounded
	}
	cmd := s.command(ctx, "evalsha", sc.SHA(), keys, args)
	s.send(ctx, before.ahead(ctx, until), cmd)
	if hasCode(cmd.Err(), "NOSCRIPT") { // evicted, flushed, or a new server
		cmd = s.command(ctx, "eval", sc.Text(), keys, args)
		s.send(ctx, nil, cmd)
	}
	return cmd
}

// command is one that runs a script.
func (s *Store) command(ctx context.Context, verb, text string, keys, args []any) *redis.Cmd {
	all := make([]any, 0, 4+len(keys)+len(args))
	all = append(append(append(all, verb, text, len(keys)), keys...), args...)
	if s.testClock != nil {
		all = append(all, strconv.FormatInt(s.testClock(), 10))
	}
	cmd := redis.NewCmd(ctx, all...)
	cmd.SetFirstKeyPos(3)
	return cmd
}

// connect makes a connection if there is no idle one, so that the time for it is no part of an
// attempt's share, which is for the server. The command stays in greeting. If it fails, so does the
// attempt.
func (s *Store) connect(ctx context.Context) {
	if one, ok := s.client.(*redis.Client); ok && !s.hasIdle() {
		_ = one.Process(ctx, redis.NewCmd(ctx, "hello"))
	}
}

// hasIdle reports whether there is a connection that a command can be sent on at once. If others
// take it first, the attempt waits for one until its call ends.
func (s *Store) hasIdle() bool {
	one, ok := s.client.(*redis.Client)
	return ok && one.PoolStats().IdleConns > 0
}

// send sends one command, and right before it another one, unless that is nil. The answer shows how
// far away the server is, NOSCRIPT too.
func (s *Store) send(ctx context.Context, before, cmd *redis.Cmd) {
	defer func() {
		// The library panics on wrong lengths in a reply.
		if problem := recover(); problem != nil {
			cmd.SetErr(fmt.Errorf("%w: %v", errForeign, problem))
		}
	}()
	began := time.Now()
	var err error
	if one, ok := s.client.(*redis.Client); ok && before != nil {
		pipe := one.Pipeline()
		_ = errors.Join(pipe.Process(ctx, before), pipe.Process(ctx, cmd)) // they only queue
		_, _ = pipe.Exec(ctx)                                              // its error is the first command's
		err = cmd.Err()
	} else {
		err = s.client.Process(ctx, sentOnce{cmd})
	}
	if err != nil && cmd.Err() == nil {
		cmd.SetErr(err)
	}
	if err == nil || isAnswer(err) && !s.passes(err) { // a server that answers only such faults is as good as silent
		s.pace.answered(time.Since(began))
	}
}

// passes reports whether a fault may pass within moments: a missing answer, a connection
// that the server or a middlebox had closed, a failover, a resharding. A connection that
// cannot be made is not such a fault: a refusal is immediate, and connecting has its own
// timeout.
func (s *Store) passes(err error) bool {
	switch {
	case err == nil, errors.Is(err, redis.ErrClosed), errors.Is(err, context.Canceled), notConnected(err):
		return false
	case isAnswer(err):
		return hasAnyCode(err, passing) || s.cluster && hasAnyCode(err, moving)
	}
	return timedOut(err) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, errReplaced)
}

// passing are the error codes of servers during a failover or while slots move.
var passing = []string{"LOADING", "READONLY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN"}

// moving are the error codes that reach the store if a cluster's slots move faster than
// the client library follows.
var moving = []string{"MOVED", "ASK"}

// mayBeApplied reports whether a command that failed with err may have run.
func mayBeApplied(err error) bool { return err != nil && !isAnswer(err) && !notConnected(err) }

// runNothing are the error codes of a server that ran nothing of a script. With any other
// error, the script may have written before.
var runNothing = slices.Concat([]string{"NOREPLICAS", "NOAUTH", "WRONGPASS"}, passing, moving)

// notRun reports whether a command that failed with err cannot have run.
func notRun(err error) bool { return notConnected(err) || hasAnyCode(err, runNothing) }

func notConnected(err error) bool {
	if err == nil {
		return false
	}
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || errors.Is(err, errNoMaster)
}

// timedOut reports whether the time of an attempt ran out. The library's own timeouts end
// later.
func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, redis.ErrPoolTimeout)
}

func hasAnyCode(err error, codes []string) bool {
	return slices.ContainsFunc(codes, func(code string) bool { return hasCode(err, code) })
}

// hasCode reports whether the server answered with an error of this code.
func hasCode(err error, code string) bool {
	if err == nil { // as mostly
		return false
	}
	var answer redis.Error
	return errors.As(err, &answer) && (answer.Error() == code || strings.HasPrefix(answer.Error(), code+" "))
}
