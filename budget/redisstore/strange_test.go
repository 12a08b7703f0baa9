package redisstore

import (
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// strangeCalls are calls with the script reply that answers them, after the clock
// where one is asked for first.
var strangeCalls = map[string]struct {
	call  int
	clock bool // asked for first
	reply string
}{
	"a grant":          {callDecide, false, grantReply},
	"a refusal":        {callDecide, false, refuseReply},
	"a staged refusal": {callDecide, false, stagedReply},
	"a hold":           {callHold, false, holdReply},
	"a look":           {callLook, false, lookReply},
	"a finish":         {callFinish, false, finishReply},
	"who spent":        {callSpent, false, replyLines(registryReply, "=", spentReply)},
	"a recovery":       {callRecover, false, recoverReply},
	"a job":            {callJob, false, jobReply},
	"jobs":             {callJobs, false, jobsReply},
	"a swap":           {callSwap, true, swapReply},
	"a history":        {callHistory, false, historyReply},
	"a fence":          {callDecideFenced, false, fencedReply},
	"a clock":          {callAccept, false, clockLine},
	"a reset":          {callReset, false, clockLine},
	"a ping":           {callPing, false, clockLine},
	"a lock":           {callLock, false, lockReply},
	"an unlock":        {callUnlock, false, lockReply},
	"a report":         {callReport, false, replyLines(registryReply, "=", reportReply)},
}

func strangeCall(t *testing.T, name string, lines []string) called {
	t.Helper()
	c := strangeCalls[name]
	script := replyLines(lines...)
	switch {
	case c.call == callAccept || c.call == callReset: // the format is asked for first
		script = replyLines("", "=", script)
	case c.clock:
		script = replyLines(clockLine, "=", script)
	}
	return call(t.Context(), t, scriptedStore(repliesOf(script), c.call == callLook, time.Minute), c.call)
}

// The store accepts an answer of a script; it rejects one with a malformed number, or without
// a part: nothing is read as 0, nothing granted.
func TestStrangeReplies(t *testing.T) {
	t.Parallel()
	for name, c := range strangeCalls {
		t.Run(name, func(t *testing.T) {
			lines := strings.Split(c.reply, "\n")
			got := strangeCall(t, name, lines)
			if got.err != nil {
				t.Fatalf("the right reply: %v", got.err)
			}
			if want := map[string]driver.Result{"a grant": driver.Granted, "a refusal": driver.Refused, "a staged refusal": driver.Refused, "a fence": driver.Fenced}[name]; want != 0 && got.decisions[0].Result != want {
				t.Fatalf("the right reply: %+v", got.decisions)
			}
			tried := 0
			for i, line := range lines {
				if _, err := strconv.ParseInt(strings.TrimPrefix(line, ":"), 10, 64); err != nil {
					continue // a list's bound, or a text
				}
				for _, wrong := range []string{"x", "_", ",", "", "-ERR no", ":-9007199254740993"} {
					changed := slices.Clone(lines)
					changed[i] = wrong
					if len(lines) == 1 && (wrong == "_" || wrong[:min(1, len(wrong))] == "-") {
						continue // an answer that is an error is no strange one
					}
					got := strangeCall(t, name, changed)
					if !errors.Is(got.err, driver.ErrStoreConfig) || !strings.Contains(got.err.Error(), "is there a proxy that changes answers?") {
						t.Errorf("line %d is %q: %+v, %v, want ErrStoreConfig", i, wrong, got.decisions, got.err)
					}
					tried++
				}
				if len(lines) > 1 {
					got := strangeCall(t, name, slices.Delete(slices.Clone(lines), i, i+1))
					check.Is(t, got.err, driver.ErrStoreConfig, "line", i, "is missing", got.decisions)
				}
			}
			if i := slices.Index(lines, clockLine); i >= 0 && c.call != callHistory { // which has records alone
				lines[i] = ":0"
				got := strangeCall(t, name, lines)
				check.Is(t, got.err, driver.ErrStoreConfig, "a server whose clock shows nothing:", got.decisions)
			}
			if tried == 0 {
				t.Fatal("nothing was changed")
			}
		})
	}
}

// A grant of other units than were asked for, or at no time, is none.
func TestStrangeGrants(t *testing.T) {
	t.Parallel()
	for what, change := range map[string][2]string{
		"other units": {"\n:2\n:1780000000000001", "\n:3\n:1780000000000001"},
		"no time":     {":1780000000000001", ":0"},
		"no result":   {"[\n:1\n:0\n:2", "[\n:0\n:0\n:2"},
		"two answers": {"]\n]\n1780000000000000", "]\n[\n]\n]\n1780000000000000"},
	} {
		changed := strings.Replace(grantReply, change[0], change[1], 1)
		if changed == grantReply {
			t.Fatalf("%s: nothing was changed", what)
		}
		if got := strangeCall(t, "a grant", strings.Split(changed, "\n")); !errors.Is(got.err, driver.ErrStoreConfig) {
			t.Errorf("%s: %+v, %v, want ErrStoreConfig", what, got.decisions, got.err)
		}
	}
}

// A server that answers what no script does is of another kind: a fault of the configuration, even where
// the client library panics, and the answer would not fit into memory. One that cuts its answer is out of reach.
func TestUnreadableReplies(t *testing.T) {
	t.Parallel()
	foreign, cut := driver.ErrStoreConfig, driver.ErrUnavailable
	for raw, want := range map[string]error{
		"*9223372036854775807\r\n": foreign, "$9223372036854775807\r\n": foreign, "*1\r\n*9223372036854775807\r\n": foreign, "*x\r\n": foreign, "$-7\r\n": foreign,
		"\r\n": foreign, ":99999999999999999999\r\n": foreign, "\n": foreign, "$99999999999\r\nx": foreign, "*1000000000\r\n": foreign,
		"HTTP/1.1 400 Bad Request\r\n": foreign, "ERROR\r\n": foreign, "J\x00\x00\x00\n8.0.33\x00": foreign, "\x15\x03\x01\x00\x02\x02F": foreign, "!5\r\nERR x\r\n": foreign,
		"+OK\r\n+OK\r\n": foreign, "$-1\r\n": foreign, ":1\r\n": foreign, "*0\r\n": foreign, "$2\r\nno\r\n": foreign,
		"": cut, "-ER": cut, "+": cut, "$": cut, "*3": cut, "*3\r": cut,
	} {
		listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				if _, err := conn.Read(make([]byte, 1<<16)); err == nil {
					_, _ = conn.Write([]byte(raw))
				}
				_ = conn.Close()
			}
		}()
		for _, user := range []string{"", ":pa55word@"} { // who is greeted first
			store := must.Get(Open(t.Context(), "redis://"+user+listener.Addr().String(), Options{Timeout: 100 * time.Millisecond}))(t)
			got := call(t.Context(), t, store, callDecide)
			if !errors.Is(got.err, want) || strings.Contains(got.err.Error(), "out of range [0]") {
				t.Errorf("%s%q: %+v, %v, want %v, and no panic", user, raw, got.decisions, got.err, want)
			}
			check.NoError(t, store.Close())
		}
		check.NoError(t, listener.Close())
		<-ended
	}
}

// That a server lacks a script shows how far away it is, also if the answer to the script itself comes late.
func TestNoScriptIsAnAnswer(t *testing.T) {
	store := scriptedStore([]any{answeredError("NOSCRIPT No matching script."), errors.New("it is gone")}, false, time.Minute)
	check.Is(t, store.Ping(t.Context()), driver.ErrUnavailable, "a ping")
	_, answers := store.Distance()
	check.Equal(t, answers, int64(1), "answers")
}
