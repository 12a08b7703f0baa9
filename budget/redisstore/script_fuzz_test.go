package redisstore

import (
	"context"
	"errors"
	"math/big"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/lua"
)

// scripted is a server that answers what it was given, one reply after the other,
// then with an error or the last one for ever.
type scripted struct {
	redis.UniversalClient
	mu      sync.Mutex // guards all below
	replies []any
	forever bool
}

type answeredError string

func (e answeredError) Error() string { return string(e) }

func (answeredError) RedisError() {}

// Process implements redis.UniversalClient.
func (s *scripted) Process(ctx context.Context, cmd redis.Cmder) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	reply := any(answeredError("ERR nothing more"))
	if len(s.replies) > 0 {
		reply = s.replies[0]
		if !s.forever || len(s.replies) > 1 {
			s.replies = s.replies[1:]
		}
	}
	err, failed := reply.(error)
	if ctx.Err() != nil {
		err, failed = ctx.Err(), true
	}
	if failed {
		cmd.SetErr(err)
		return err
	}
	cmd.(sentOnce).SetVal(reply)
	return nil
}

// Close implements redis.UniversalClient.
func (s *scripted) Close() error { return nil }

// repliesOf reads replies from lines: [ and ] open and close a list, : is an
// integer, - an error, _ nothing, = a reply's end, and the rest text; what else a
// server may send, a float, a boolean, a map and a large integer, is one of ,#%(.
func repliesOf(script string) (replies []any) {
	lists := [][]any{nil}
	put := func(v any) { lists[len(lists)-1] = append(lists[len(lists)-1], v) }
	pop := func() {
		inner := lists[len(lists)-1]
		if inner == nil {
			inner = []any{}
		}
		lists = lists[:len(lists)-1]
		put(inner)
	}
	end := func() {
		for len(lists) > 1 {
			pop()
		}
		if len(lists[0]) > 0 {
			replies = append(replies, lists[0][0])
		}
		lists = [][]any{nil}
	}
	for line := range strings.SplitSeq(script, "\n") {
		kind, rest := "", ""
		if line != "" {
			kind, rest = line[:1], line[1:]
		}
		switch kind {
		case "[":
			lists = append(lists, nil)
		case "]":
			if len(lists) > 1 {
				pop()
			}
		case ":":
			n, _ := strconv.ParseInt(rest, 10, 64)
			put(n)
		case "-":
			put(answeredError(rest))
		case "_":
			put(nil)
		case "=":
			end()
		case ",":
			put(1.5)
		case "#":
			put(rest == "t")
		case "%":
			put(map[any]any{rest: rest})
		case "(":
			put(new(big.Int).SetUint64(1 << 63))
		default:
			put(line)
		}
	}
	end()
	return replies
}

var testScripts = lua.With(lua.Clock())

func scriptedStore(replies []any, forever bool, timeout time.Duration) *Store {
	return &Store{pace: &pace{},
		client: &scripted{replies: replies, forever: forever}, prefix: DefaultPrefix, timeout: timeout,
		scripts: testScripts, maxSteps: maxSteps, ledgers: map[string]*registry{}, plans: map[string]*plans{}, planned: map[string]*plannedText{}, tidying: map[string]bool{}, clocks: map[string]*offset{},
	}
}

// scriptedLimits are one of each kind.
func scriptedLimits(t testing.TB) []limit.Limit {
	t.Helper()
	refill := must.Get(limit.NewRefill(1, time.Second))(t)
	month := must.Get(limit.NewCalendar(limit.Month, "America/Los_Angeles", time.Hour))(t)
	return []limit.Limit{
		{Name: "w", Limit: 10, Counts: limit.CountUnits, Window: limit.CoarseWindow(time.Hour, time.Minute)},
		{Name: "b", Limit: 10, Counts: limit.CountUnits, Window: limit.BucketWindow(refill)},
		{Name: "c", Limit: 10, Counts: limit.CountCalls, Window: limit.CalendarWindow(month)},
	}
}

// reply joins lines, and lists of them.
func replyLines(lines ...string) string { return strings.Join(lines, "\n") }

const (
	clockLine = "1780000000000000"
	// What three limits used, and the scores of none.
	noneUsed = ":3\n:0\n:3\n:0\n:1\n:0"
)

var (
	markReply  = replyLines("[", "LEDGER", "3", "newest", "1780000000000000", "0a 1780000000000000", "0", "web2 1f00 1779999999999999 1780000000000000", "[", "", "", "0", "[", "]", "[", "]", "]", "d1 0123 - 20 1780000300000000", "1780007140000000", "]", "[", "]", "[", "]") // and that nothing is missing or held
	grantReply = replyLines("[", ":0", clockLine, "[", "[", ":1", ":0", ":2", ":1780000000000001", ":0", "", noneUsed, "]", "]",
		"1780000000000000", "1780000000000001", "[", "]", "[", ":3", ":3", ":1", ":0", "]", "", markReply, "0", "]")
	refuseReply = replyLines("[", ":0", clockLine, "[", "[", ":2", ":0", ":0", ":1780000000000001", ":0", "", ":10", "1779999999999999", ":10", "7/1780000000000000", ":9", ":0", "]", "]",
		"1779000000000000", "1780000000000001", "[", "]", "[", ":10", ":10", ":9", ":0", "]", "", markReply, "0", "]")
	// stagedReply is a refusal beside a hold.
	stagedReply = replyLines("[", ":0", clockLine, "[", "[", ":2", ":0", ":0", ":1780000000000001", ":0", "", ":10", "1779999999999999", ":10", "7/1780000000000000", ":9", ":0",
		"[", "[", "1780000000000009", "]", "[", "[", "1780000000000009", "1779999999999999", "7/1780000000000000", ":0", "]", "]", "", "]", "]", "]",
		"1779000000000000", "1780000000000001", "[", "]", "[", ":10", ":10", ":9", ":0", "]", "", markReply, "0", "]")
	holdReply     = replyLines("[", ":0", clockLine, "[", "1|~job/1|job|US||5|60000000|1779999999999999|1780000000000009|1:5:1:op,", "]", "]")
	registryReply = replyLines("[", ":2", clockLine, "op,videos.list", "", "]")
	lookReply     = replyLines("[", ":0", clockLine, "[", "]", "1779000000000000", clockLine, "[", "[", "3", "0", "1779999999999999", "0", "", "0", "0", "[", "]", "]", "[", "3", "9", clockLine, "]",
		"[", "1", "0", "1779999999999999", "1", "", "0", "0", "[", "]", "]", "]", "[", ":3", ":3", ":1", ":0", "]", "* 1780000000000001 1779999999999999 spent: 403", markReply, "0", "]")
	finishReply  = replyLines("[", ":0", clockLine, ":1", ":0", clockLine, "]")
	spentReply   = replyLines("[", ":0", clockLine, "0", "[", "[", "2", "5", "1", "0", "1", "]", "]", "", "]")
	entriesReply = replyLines("[", ":0", clockLine, clockLine, "ledger", "1779000000000000", "0", "3", "[", "a", "1|2|5||p|1780000000000000||j||", "]", "", "]")
	recoverReply = replyLines("[", ":0", clockLine, "[", "]", "1779000000000000", clockLine, "[", "[", "3", "", "]", "[", "3", "", "]", "[", "1", "", "]", "]", "[", ":0", "]", "", markReply, "0", "]")
	reportReply  = replyLines("[", ":0", clockLine, "[", "]", "1779000000000000", clockLine, "[", "[", "3", "5", "1779999999999999", "]", "[", "0", "0", "0", "]", "[", "0", "0", "0", "]", "]", "[", ":0", "]", "", markReply, "0", "]")
	lockReply    = replyLines("[", ":0", clockLine, "1780000000000001", clockLine, "spent: 403", ":0", "]")
	fencedReply  = replyLines("[", ":0", clockLine, "[", "[", ":10", ":0", ":0", ":0", ":0", "", noneUsed, "]", "]",
		"1780000000000000", "1780000000000001", "[", "]", "[", ":3", ":3", ":1", ":0", "]", "", markReply, "0", "]")
	jobReply     = replyLines("[", clockLine, "7", "{}", "]")
	jobsReply    = replyLines("[", clockLine, "7", "{}", "0", "_", "1", "", "]")
	swapReply    = replyLines("[", ":1", clockLine, ":0", "]")
	valueReply   = replyLines("[", "a value", "]")
	historyReply = replyLines("[", "[", "1780000000000001", "b", "{}", "]", "[", clockLine, "a", "", "]", "]")
)

// The calls that are made of a store.
const (
	callDecide = iota
	callDecideThree
	callLook
	callFinish
	callSpent
	callSpentByJob
	callRecover
	callJob
	callSwap
	callValue
	callHistory
	callAccept
	callReset
	callPing
	callLock
	callUnlock
	callReport
	callJobs
	callDecideFenced
	callEntries
	callHold
	allCalls
)

// called is what a call came to.
type called struct {
	items     []driver.Item
	decisions []driver.Decision
	err       error
}

func call(ctx context.Context, t testing.TB, s *Store, what int) (c called) {
	const name, now = "up/key1", int64(1_780_000_000_000_000)
	limits := scriptedLimits(t)
	switch what {
	case callDecide, callDecideThree, callDecideFenced:
		c.items = []driver.Item{{ID: "a", Operation: "op", Units: 2}}
		if what == callDecideFenced {
			c.items[0].Fence = "~job/1"
		}
		if what == callDecideThree {
			c.items = append(c.items, driver.Item{ID: "b", Operation: "op", Units: 1, Lease: 1_000_000}, driver.Item{ID: "c", Operation: "videos.list", Units: 0, DryRun: true})
		}
		var got driver.Decisions
		got, c.err = s.Decide(ctx, driver.Batch{Budget: name, Now: now, Limits: limits, Items: c.items})
		c.decisions = got.Items
	case callLook:
		_, c.err = s.Look(ctx, driver.Look{Budget: name, Now: now, Limits: limits})
	case callHold:
		_, c.err = driver.Apply(ctx, s, driver.HoldChange{Budget: name, Now: now, Fence: "~job/1"})
	case callFinish:
		var got driver.Finished
		got, c.err = driver.FinishOne(ctx, s, name, now, driver.Finish{ID: "a", Units: 1})
		if c.err == nil && (got.Result < driver.Settled || got.Result > driver.FinishOverflow) {
			t.Errorf("a finish of result %d", got.Result)
		}
	case callSpent:
		_, c.err = s.Spent(ctx, driver.SpentQuery{Budget: name, Now: now, By: driver.ByOperation})
	case callSpentByJob:
		_, c.err = s.Spent(ctx, driver.SpentQuery{Budget: name, Now: now, By: driver.ByJob})
	case callEntries:
		c.err = s.Export(ctx, driver.Export{Budget: name, Now: now, Counting: driver.Counting{Limits: limits[:1], At: now}}, &noted{})
	case callRecover:
		_, c.err = driver.Apply(ctx, s, driver.Recovery{Budget: name, Now: now, Limits: limits, Used: []int64{1, 2, -1}, At: now - 1})
	case callJob:
		_, c.err = s.Job(ctx, "j")
	case callJobs:
		var got []driver.JobDocument
		got, c.err = s.Jobs(ctx, []string{"j", "k", "l"})
		for _, d := range got {
			if d.Now <= 0 || (d.Text == nil) != (d.Version == 0) {
				t.Errorf("a document %+v", d)
			}
		}
	case callSwap:
		_, c.err = s.SwapJob(ctx, driver.JobSwap{
			Job: "j", Version: 7, Text: []byte("{}"), Values: map[string][]byte{"a": []byte("1"), "b": nil},
			Records: []driver.JobRecord{{At: now, ID: "a", Text: []byte("{}")}}, Most: 9,
		})
	case callValue:
		_, c.err = s.JobValue(ctx, "j", "a")
	case callHistory:
		var got []driver.JobRecord
		got, c.err = s.JobHistory(ctx, driver.JobHistoryQuery{Job: "j", Most: 9})
		if len(got) > 9 {
			t.Errorf("%d records", len(got))
		}
	case callAccept:
		_, c.err = driver.Apply(ctx, s, driver.AcceptClock{Budget: name})
	case callReset:
		_, c.err = driver.Apply(ctx, s, driver.Reset{Budget: name})
	case callLock:
		_, c.err = driver.Apply(ctx, s, driver.Lock{Budget: name, Now: now, After: 1, Most: 1, Why: "spent: 403"})
	case callUnlock:
		_, c.err = driver.Apply(ctx, s, driver.Unlock{Budget: name, Now: now})
	case callReport:
		_, c.err = driver.Apply(ctx, s, driver.Report{Budget: name, Now: now, Limits: limits, Limit: limits[0].Name, Used: 5})
	default:
		c.err = s.Ping(ctx)
	}
	return c
}

// noted is a driver.LedgerWriter that takes all.
type noted struct{ rows int }

func (n *noted) Head(driver.LedgerHead) error { return nil }

func (n *noted) Row(driver.Row) error {
	n.rows++
	return nil
}

// grants reports whether some reply is a script's that grants so many units.
func grants(replies []any, units int64) bool {
	for _, reply := range replies {
		whole, _ := reply.([]any)
		if len(whole) < 3 || !count(whole[0]) || number(whole[0]) != 0 {
			continue
		}
		answers, _ := whole[2].([]any)
		for _, one := range answers {
			answer, _ := one.([]any)
			if len(answer) > 3 && count(answer[0]) && number(answer[0]) == 1 && number(answer[2]) == units {
				return true
			}
		}
	}
	return false
}

// Whatever a server answers to whatever is asked, nothing panics or hangs, what is
// granted was granted by it, and every failure says which one it is.
func FuzzScripts(f *testing.F) {
	answered := map[int]string{
		callDecide: grantReply, callDecideThree: refuseReply, callLook: lookReply, callFinish: finishReply, callSpent: spentReply, callSpentByJob: spentReply, callEntries: entriesReply,
		callRecover: recoverReply, callJob: jobReply, callJobs: jobsReply, callSwap: swapReply, callValue: valueReply, callHistory: historyReply, callAccept: clockLine, callReset: clockLine, callPing: clockLine,
		callLock: lockReply, callUnlock: lockReply, callReport: reportReply, callDecideFenced: fencedReply, callHold: holdReply,
	}
	for what := range allCalls {
		for _, forever := range []bool{false, true} {
			f.Add(answered[what], uint8(what), forever)
			f.Add(replyLines(clockLine, "=", answered[what]), uint8(what), forever)
			f.Add(strings.ReplaceAll(answered[what], clockLine, ":0"), uint8(what), forever)
			f.Add(replyLines(clockLine, "=", registryReply, "=", answered[what]), uint8(what), forever)
		}
		f.Add(replyLines("-NOSCRIPT no", "=", clockLine, "=", "[", ":1", clockLine, "]", "=", "[", ":3", clockLine, "9007199254740992", "]", "=", answered[what]), uint8(what), false)
		f.Add(replyLines(clockLine, "=", "-LOADING it is", "=", "[", ":5", clockLine, "m is missing", "]"), uint8(what), false)
	}
	f.Add(replyLines(clockLine, "=", stagedReply), uint8(callDecide), true)
	f.Add(replyLines("[", ":0", clockLine, clockLine, "ledger", "0", "0", "3", "[", "]", "1 5", "]"), uint8(callEntries), true) // there is ever more to be read
	f.Add(replyLines(clockLine, "=", "[", ":1", clockLine, ":1", "]"), uint8(callSwap), true)                                   // there is ever more to be forgotten
	f.Fuzz(func(t *testing.T, script string, what uint8, forever bool) {
		replies := repliesOf(script)
		store := scriptedStore(replies, forever, 5*time.Millisecond)
		hung := time.AfterFunc(time.Minute, func() { panic("a call does not end: " + strconv.Quote(script)) })
		defer hung.Stop()
		got := call(context.Background(), t, store, int(what)%allCalls)
		for i, d := range got.decisions {
			if d.Result < driver.Granted || d.Result > driver.OutcomeUnknown && (d.Result != driver.Fenced || got.items[i].Fence == "") || d.Limit < -1 || d.Limit >= 3 {
				t.Errorf("item %d of %q: %+v", i, script, d)
			}
			if d.Result == driver.Granted && !grants(replies, got.items[i].Units) {
				t.Errorf("item %d is granted by %q: %+v", i, script, d)
			}
		}
		if got.err == nil {
			return
		}
		known := false
		for _, kind := range []error{driver.ErrUnavailable, driver.ErrStoreConfig, driver.ErrClock, driver.ErrDamaged, driver.ErrLost} {
			known = known || errors.Is(got.err, kind)
		}
		if !known || strings.Contains(got.err.Error(), "%!") && !strings.Contains(script, "%!") {
			t.Errorf("call %d on %q: %v", what, script, got.err)
		}
	})
}
