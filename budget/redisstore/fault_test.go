package redisstore_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
	"github.com/quotactl/quotactl/internal/storetest"
)

const name = "up/key1"

var hourly = []limit.Limit{{Name: "hour", Limit: 100, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)}}

// openStore opens a store with a timeout for a busy machine, unless the test names one.
func openStore(t testing.TB, url string, o redisstore.Options) *redisstore.Store {
	t.Helper()
	o.Timeout = cmp.Or(o.Timeout, patient)
	store := must.Get(redisstore.Open(t.Context(), url, o))(t)
	t.Cleanup(func() { _ = store.Close() })
	return store
}

func decide(ctx context.Context, s *redisstore.Store, items ...driver.Item) ([]driver.Decision, error) {
	got, err := s.Decide(ctx, driver.Batch{Budget: name, Now: time.Now().UnixMicro(), Limits: hourly, Items: items})
	return got.Items, err
}

// charge charges one unit that must be granted.
func charge(t testing.TB, s *redisstore.Store, id string) driver.Decision {
	t.Helper()
	d := must.Get(chargeInTime(t, s, id))(t)
	return d
}

// chargeInTime charges one unit that must be granted, unless the time of the call runs out.
func chargeInTime(t testing.TB, s *redisstore.Store, id string) (driver.Decision, error) {
	t.Helper()
	d, err := decideInTime(s, driver.Item{ID: id, Operation: "op", Units: 1})
	if err == nil {
		must.Equal(t, d.Result, driver.Granted, "charge", id)
	}
	return d, err
}

// decideInTime decides an item; an error is ErrUnavailable if the time of the call runs out.
func decideInTime(s *redisstore.Store, item driver.Item) (driver.Decision, error) {
	got, err := decide(context.Background(), s, item)
	if err != nil {
		return driver.Decision{}, err
	}
	switch d := got[0]; d.Result {
	case driver.Late, driver.Interrupted, driver.OutcomeUnknown:
		return d, fmt.Errorf("decide %s: %w: %+v", item.ID, driver.ErrUnavailable, d)
	default:
		return d, nil
	}
}

// chargeAtLast charges one unit, once, however often the time of the call runs out. The store
// knows the server's clock then.
func chargeAtLast(t testing.TB, s *redisstore.Store, id string) {
	t.Helper()
	redistest.Await(t, "the charge "+id, func() bool {
		_, err := chargeInTime(t, s, id)
		if err != nil {
			must.Is(t, err, driver.ErrUnavailable)
		}
		return err == nil
	})
}

// inTime makes calls to which a test gives a time of their own. On a machine that stands still
// meanwhile it runs out: then they are made again, with twice the time.
func inTime(t *testing.T, first time.Duration, try func(span time.Duration) error) {
	t.Helper()
	for span := first; ; span *= 2 {
		err := try(span)
		if err == nil {
			return
		}
		if !errors.Is(err, driver.ErrUnavailable) || span > 16*first {
			t.Fatalf("with %s for a call: %v", span, err)
		}
		t.Logf("with %s for a call: %v", span, err)
	}
}

func used(t testing.TB, s *redisstore.Store) int64 {
	t.Helper()
	view := must.Get(s.Look(context.Background(), driver.Look{Budget: name, Now: time.Now().UnixMicro(), Limits: hourly}))(t)
	return view.Limits[0].Used
}

// A server that has lost its scripts is given them again.
func TestScriptsAreHealed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := openStore(t, server.URL(0), redisstore.Options{})
	admin := server.Client()
	for i := range 3 {
		must.Do(t, admin.ScriptFlush(t.Context()).Err())
		charge(t, store, fmt.Sprint(i))
	}
	must.Equal(t, used(t, store), 3, "used")
}

// A connection that the server closed while it idled costs no call.
func TestClosedConnectionsAreReplaced(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := openStore(t, server.URL(0), redisstore.Options{})
	admin := server.Client()
	for i := range 5 {
		charge(t, store, fmt.Sprint(i))
		must.Do(t, admin.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err())
	}
	must.Equal(t, used(t, store), 5, "used")
}

func TestServerOutOfReach(t *testing.T) {
	t.Parallel()
	store := openStore(t, "redis://"+redistest.FreeAddress(t), redisstore.Options{})
	for what, err := range map[string]error{
		"ping":   store.Ping(t.Context()),
		"decide": func() error { _, err := decide(t.Context(), store, driver.Item{ID: "a", Operation: "op"}); return err }(),
		"look":   func() error { _, err := store.Look(t.Context(), driver.Look{Budget: name, Limits: hourly}); return err }(),
		"finish": func() error {
			_, err := driver.FinishOne(t.Context(), store, name, 0, driver.Finish{ID: "a"})
			return err
		}(),
		"job": func() error { _, err := store.Job(t.Context(), "j"); return err }(),
	} {
		if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrStoreConfig) {
			t.Errorf("%s: %v, want ErrUnavailable", what, err)
		}
	}
}

// stoppedServer stops the server while charges are tried, lets it go on, and
// wants nothing of them in the ledger.
func stoppedServer(t *testing.T, server *redistest.Server, store *redisstore.Store, try func(id string) error) {
	t.Helper()
	chargeAtLast(t, store, "before")
	server.Signal(syscall.SIGSTOP)
	for i := range 5 {
		check.Is(t, try(fmt.Sprint("given-up-", i)), driver.ErrUnavailable, "charge on a stopped server")
	}
	server.Signal(syscall.SIGCONT)
	patientStore := openStore(t, server.URL(0), redisstore.Options{})
	charge(t, patientStore, "after")
	must.Equal(t, used(t, patientStore), 2, "used: before and after")
}

// A server that is stopped and goes on charges nothing of the calls that were
// given up meanwhile.
func TestStoppedServerChargesNothingLate(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := openStore(t, server.URL(0), redisstore.Options{})
	b := must.Get(budget.New(store, budget.Spec{Name: name, Limits: hourly, Costs: map[string]budget.Cost{"op": {Units: 1}}, Timeout: time.Second}))(t)
	stoppedServer(t, server, store, func(id string) error {
		_, err := b.Charge(t.Context(), budget.Call{Operation: "op", ID: id})
		return err
	})
}

// A caller that would wait longer than the store does is given up with the
// store, and not charged later either.
func TestGivenUpByTheStoreIsNotChargedLate(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := openStore(t, server.URL(0), redisstore.Options{Timeout: time.Second})
	stoppedServer(t, server, store, func(id string) error {
		_, err := decide(t.Context(), store, driver.Item{ID: id, Operation: "op", Units: 1, Deadline: time.Now().Add(time.Minute)})
		return err
	})
}

// A permission that is missing spoils nothing: once it is granted the ledger
// works and expires.
func TestMissingPermissionSpoilsNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client()
	for _, command := range []string{"hset", "zadd", "pexpireat", "hdel", "zrem", "zcard", "hmget", "time"} {
		user := "no-" + command
		for _, args := range [][]any{
			{"ACL", "SETUSER", user, "on", ">x", "~*", "+@all", "-" + command},
		} {
			must.Do(t, admin.Do(t.Context(), args...).Err())
		}
		store := openStore(t, "redis://"+user+":x@"+server.Addr, redisstore.Options{Prefix: user})
		if _, err := decide(t.Context(), store, driver.Item{ID: "a", Operation: "op", Units: 1}); !errors.Is(err, driver.ErrStoreConfig) {
			t.Errorf("without %s: %v, want ErrStoreConfig", command, err)
		}
		must.Do(t, admin.Do(t.Context(), "ACL", "SETUSER", user, "+@all").Err())
		charge(t, store, "b")
		check.Equal(t, used(t, store), 1, "without", command, "and then with it: used")
		keys := must.Get(admin.Keys(t.Context(), user+":*").Result())(t)
		for _, key := range keys {
			if left, err := admin.PTTL(t.Context(), key).Result(); err != nil || left < time.Hour {
				t.Errorf("without %s and then with it: %s expires in %s, %v", command, key, left, err)
			}
		}
	}
}

func TestConfigurationFaults(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client()
	do := func(args ...any) {
		t.Helper()
		must.Do(t, admin.Do(t.Context(), args...).Err())
	}
	do("ACL", "SETUSER", "blind", "on", ">pa55word", "+evalsha", "+eval", "~quotactl:*")
	do("ACL", "SETUSER", "elsewhere", "on", ">pa55word", "+@all", "~other:*")
	do("SET", "wrongtype:v1:{"+name+"}:m", "a string")
	do("RPUSH", "wrongkind:v1:{"+name+"}:e", "a list")
	do("HSET", "newer:v1:{"+name+"}:m", "v", "5")
	for what, c := range map[string]struct {
		user, password, prefix, says string
	}{
		"wrong password":     {"blind", "wr0ng", "quotactl", "password"},
		"missing permission": {"blind", "pa55word", "quotactl", "permission"},
		"missing key":        {"elsewhere", "pa55word", "quotactl", "permission"},
		"wrong type":         {"", "", "wrongtype", "prefix"},
		"newer format":       {"", "", "newer", "format 5"},
	} {
		url := server.URL(0)
		if c.user != "" {
			url = "redis://" + c.user + ":" + c.password + "@" + server.Addr
		}
		store := openStore(t, url, redisstore.Options{Prefix: c.prefix})
		_, err := decide(t.Context(), store, driver.Item{ID: "a", Operation: "op", Units: 1})
		if !errors.Is(err, driver.ErrStoreConfig) || errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want ErrStoreConfig saying %q", what, err, c.says)
			continue
		}
		if c.password != "" && strings.Contains(err.Error(), c.password) {
			t.Errorf("%s: the error holds the password: %v", what, err)
		}
	}
	if _, err := decide(t.Context(), openStore(t, server.URL(0), redisstore.Options{Prefix: "wrongkind"}), driver.Item{ID: "a", Operation: "op", Units: 1}); err == nil {
		t.Error("a list in place of the entries was taken")
	}
}

// leastURL is a server's URL for a user who may do the least that is needed, on
// keys of a pattern.
func leastURL(t *testing.T, server *redistest.Server, keys, more string) string {
	t.Helper()
	admin := server.Client()
	args := []any{"ACL", "SETUSER", "least", "on", ">secret", "~" + keys, "-@all"}
	for _, command := range strings.Fields(redisstore.LeastCommands + " " + more) {
		args = append(args, "+"+command)
	}
	must.Do(t, admin.Do(t.Context(), args...).Err())
	return "redis://least:secret@" + server.Addr
}

// The documents grant what the tests are run with.
func TestLeastPermissionsAreDocumented(t *testing.T) {
	t.Parallel()
	rules := func(commands string) string { return "+" + strings.ReplaceAll(commands, " ", " +") }
	for name, needed := range map[string][]string{
		"README.md": {redisstore.LeastCommands}, "docs/redis.md": {redisstore.LeastCommands, redisstore.LeastClusterCommands},
	} {
		text := must.Get(os.ReadFile(filepath.Join("..", "..", name)))(t)
		for _, commands := range needed {
			if !strings.Contains(string(text), rules(commands)) {
				t.Errorf("%s does not grant %s", name, rules(commands))
			}
		}
	}
}

// What else there is, beside the suite and the walk, is done by a user who may
// do the least.
func TestLeastPermissions(t *testing.T) {
	t.Parallel()
	store := openStore(t, leastURL(t, redistest.Start(t), "quotactl:*", "")+"/1", redisstore.Options{})
	must.Do(t, store.Ping(t.Context()))
	charge(t, store, "a")
	got := must.Get(decide(t.Context(), store, driver.Item{ID: "r", Operation: "other", Units: 1, Lease: 1_000_000}, driver.Item{ID: "n", Operation: "op", Units: 99}))(t)
	must.Equal(t, got[1].Result, driver.Refused)
	if done, err := driver.FinishOne(t.Context(), store, name, time.Now().UnixMicro(), driver.Finish{ID: "r", Release: true}); err != nil || done.Result != driver.Released {
		t.Fatalf("%+v, %v", done, err)
	}
	must.Get(driver.Apply(t.Context(), store, driver.AcceptClock{Budget: name}))(t)
	must.Equal(t, used(t, store), 1, "used")
	recovery := driver.Recovery{Budget: name, Now: time.Now().UnixMicro(), Limits: hourly, Used: []int64{9}, At: time.Now().UnixMicro(), Mark: driver.Mark{ID: "lost", At: time.Now().UnixMicro()}}
	must.Equal(t, must.Get(driver.Apply(t.Context(), store, recovery))(t).Amounts[0], 8)
	if list := store.Diagnose(t.Context()); found(t, list, "permissions").Level != driver.OK {
		t.Fatalf("%+v", list)
	}
	must.Get(store.Spent(t.Context(), driver.SpentQuery{Budget: name, Now: time.Now().UnixMicro(), By: driver.ByJob}))(t)
	must.Get(driver.Apply(t.Context(), store, driver.Reset{Budget: name}))(t)
	swap := driver.JobSwap{
		Job: "j", Text: []byte("{}"), Values: map[string][]byte{"a": []byte("1"), "b": nil}, Most: 1,
		Records: []driver.JobRecord{{At: 1, ID: "a"}, {At: 2, ID: "b"}, {At: 3, ID: "c"}}, Forget: 2,
	}
	if done, err := store.SwapJob(t.Context(), swap); err != nil || !done {
		t.Fatalf("%v, %v", done, err)
	}
	if found, err := store.JobHistory(t.Context(), driver.JobHistoryQuery{Job: "j", Most: 9}); err != nil || len(found) != 1 {
		t.Fatalf("%+v, %v", found, err)
	}
	if value, err := store.JobValue(t.Context(), "j", "a"); err != nil || string(value) != "1" {
		t.Fatalf("%q, %v", value, err)
	}
}

// I5: what was acknowledged survives kill -9 of a server that appends to a file.
func TestKilledServerKeepsAcknowledged(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	store := openStore(t, server.URL(0), redisstore.Options{})
	for i := range 60 {
		charge(t, store, fmt.Sprint(i))
		if i%20 == 19 {
			server.Kill()
			if !server.Start() {
				t.Fatal("the server does not start again")
			}
		}
	}
	for i := range 60 {
		if d := charge(t, store, fmt.Sprint(i)); !d.Replayed {
			t.Fatalf("charge %d was lost", i)
		}
	}
}

// I9: the store's password stands in no error, whatever fails.
func TestConformanceSecret(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client()
	must.Do(t, admin.ConfigSet(t.Context(), "requirepass", "r1ght-pa55word").Err())
	const secret = "s3cret-pa55word"
	stores := map[string]storetest.Store{}
	for what, url := range map[string]string{
		"wrong password": "redis://:" + secret + "@" + server.Addr,
		"wrong user":     "redis://nobody:" + secret + "@" + server.Addr,
		"no server":      "redis://:" + secret + "@" + redistest.FreeAddress(t),
		"no cluster":     "redis+cluster://:" + secret + "@" + server.Addr,
		"no TLS":         "rediss://:" + secret + "@" + server.Addr,
		"no sentinel":    "redis+sentinel://:" + secret + "@" + server.Addr + "/m",
	} {
		stores[what] = openStore(t, url, redisstore.Options{Timeout: 500 * time.Millisecond})
	}
	storetest.NoSecret(t, secret, stores)
}
