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

// run runs a script whose arguments do not depend on the attempt.
func (s *Store) run(ctx context.Context, sc lua.Script, keys []string, args ...any) *redis.Cmd {
	cmd, _ := s.attempts(ctx, sc, keys, func(time.Time) []any { return args })
	return cmd
}

// attempts runs a script, sent again on another connection within the context's
// deadline when no answer came in this attempt's share of the time, or the fault
// is one that passes. That is safe for every script: charges and swaps carry ids,
// and the others say the same when they are said twice.
//
// The arguments are made for each attempt from the instant at which it is given
// up. A script that decides refuses past it, so that nothing of an attempt
// happens once the next is under way: that one's answer is the truth of both.
//
// Where servers may change places, an attempt that failed has it looked where they
// are before the next one; a connection that cannot be made, and a master that was
// cut off from its replicas, then count as faults that pass, once.
//
// Unsure tells that an attempt without an answer went before the one that
// answered, and may have been applied.
func (s *Store) attempts(ctx context.Context, sc lua.Script, keys []string, args func(until time.Time) []any) (cmd *redis.Cmd, unsure bool) {
	end, _ := ctx.Deadline() // Store.begin has set it
	whole := time.Until(end)
	share, answered, followed := s.pace.share(whole), false, false
	s.follow.begins(ctx)
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		began := time.Now()
		until := shareEnd(began, share, end)
		cmd = s.once(ctx, until, sc, keys, args(until))
		err := cmd.Err()
		if err == nil || isAnswer(err) {
			answered = true
			s.follow.answered()
			s.pace.took(time.Since(began))
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

// once is one attempt, given up at until.
func (s *Store) once(ctx context.Context, until time.Time, sc lua.Script, keys []string, args []any) *redis.Cmd {
	if s.testClock != nil {
		args = append(args, strconv.FormatInt(s.testClock(), 10))
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	cmd := s.send(ctx, "evalsha", sc.SHA, keys, args)
	if hasCode(cmd.Err(), "NOSCRIPT") { // evicted, flushed, or a new server
		cmd = s.send(ctx, "eval", sc.Text, keys, args)
	}
	return cmd
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

// passes reports whether a fault may be gone in a moment: an answer that did not
// come, a connection that the server or a middlebox had closed, a failover, a
// resharding. A connection that cannot be made is not among them: a refused one
// costs nothing to know, and connecting has a time of its own.
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

// What servers answer while they fail over or slots move.
var passing = []string{"LOADING", "READONLY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN"}

// What reaches the store of a cluster when slots move faster than the client
// library follows.
var moving = []string{"MOVED", "ASK"}

// mayBeApplied reports whether a command that failed so may have been run.
func mayBeApplied(err error) bool { return err != nil && !isAnswer(err) && !notConnected(err) }

// What servers answer that run nothing of a script. A script may have written before
// it is refused anything else.
var runNothing = slices.Concat([]string{"NOREPLICAS", "NOAUTH", "WRONGPASS"}, passing, moving)

// notRun reports whether a command that failed so cannot have been run.
func notRun(err error) bool { return notConnected(err) || hasAnyCode(err, runNothing) }

func notConnected(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || errors.Is(err, errNoMaster)
}

// timedOut reports that the time of an attempt ran out: the library's own
// timeouts come later.
func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, redis.ErrPoolTimeout)
}

func hasAnyCode(err error, codes []string) bool {
	return slices.ContainsFunc(codes, func(code string) bool { return hasCode(err, code) })
}

// hasCode reports whether the server answered with an error of this code.
func hasCode(err error, code string) bool {
	var answer redis.Error
	return errors.As(err, &answer) && (answer.Error() == code || strings.HasPrefix(answer.Error(), code+" "))
}
