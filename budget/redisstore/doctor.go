package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quotactl/quotactl/budget/driver"
)

// LeastCommands are the commands a user needs, on the keys of the prefix.
const LeastCommands = "evalsha eval select time exists del get append hget hmget hset hsetnx hdel hlen hscan zadd zrem zcard zcount zrange zrangebyscore zremrangebyrank pexpireat"

// LeastClusterCommands are further commands that a user of a cluster needs.
const LeastClusterCommands = "cluster|slots cluster|shards readonly command"

// tried are the major versions of servers that the tests run on.
var tried = map[string][]string{"Redis": {"7", "8"}, "Valkey": {"8"}}

// doctorTime is how long doctor waits for a first answer, which shows how far away a server is.
const doctorTime = 10 * time.Second

// probes is how many empty scripts measure the latency.
const probes = 20

// Diagnose connects as any call would and reports what may keep the servers from
// holding the store's promises. It spends nothing and removes what it writes. It stops
// at the first fault that the rest depends on.
func (s *Store) Diagnose(ctx context.Context) []driver.Finding {
	var list []driver.Finding
	add := func(check string, level driver.Severity, advice, says string, args ...any) {
		list = append(list, driver.Finding{Check: check, Level: level, Says: fmt.Sprintf(says, args...), Advice: advice})
	}
	began := time.Now()
	if err := s.Ping(s.WithTimeout(ctx, doctorTime)); err != nil {
		return s.unreached(ctx, err)
	}
	if near, _ := s.Distance(); near > s.timeout {
		add("connection", driver.Fault, distanceAdvice(near), "the server answers later than the timeout of %s", s.timeout)
		return list
	}
	add("connection", driver.OK, "", "answers, and runs scripts, after %s", time.Since(began).Round(10*time.Microsecond))
	tried, err := s.tryCommands(ctx)
	if err != nil {
		return s.unreached(ctx, err)
	}
	clock, latency := clockFinding(tried.clock-time.Now().UnixMicro()), s.latency(ctx)
	servers := s.servers(ctx)
	if tried.lacksReplicas() && !slices.ContainsFunc(servers, tellsRefusal) {
		// A replica came back between the trial and the look at the servers.
		if tried, err = s.tryCommands(ctx); err != nil {
			return s.unreached(ctx, err)
		}
	}
	list = append(list, s.permissionFindings(tried, slices.ContainsFunc(servers, tellsRefusal))...)
	return append(append(list, clock, latency), servers...)
}

// unreached returns the findings when the store does not answer; with several servers,
// also which of them do.
func (s *Store) unreached(ctx context.Context, err error) []driver.Finding {
	f := driver.Finding{Check: "connection", Level: driver.Fault, Says: err.Error(), Advice: s.adviceOn(err)}
	switch c := s.client.(type) {
	case *redis.Ring:
		list := s.servers(ctx)
		if slices.ContainsFunc(list, func(f driver.Finding) bool { return f.Check == "version" }) {
			f.Level, f.Says, f.Advice = driver.Warning, "some shards answer, and others do not", "repair those named below: the others serve their budgets"
		}
		return append([]driver.Finding{f}, list...)
	case *sentinels:
		_, list := c.findings(ctx)
		return append([]driver.Finding{f}, list...)
	}
	return []driver.Finding{f}
}

// adviceOn is what to do about a failed call; "" if its error says so.
func (s *Store) adviceOn(err error) string {
	near, _ := s.Distance()
	switch {
	case errors.Is(err, driver.ErrStoreConfig), passingAdvice(err) != "":
		return ""
	case isAnswer(err):
		return "the server runs: wait until what it answered has passed, or repair that"
	case usualTrips*near > s.timeout/2:
		return distanceAdvice(near)
	}
	return "make sure that the server runs, and that this machine reaches it as this user"
}

// trial is the outcome of trying every command.
type trial struct {
	denied  []string // commands, each with a plus in front, as in ACL rules
	refused string   // why the server refuses writes from any user; empty if it accepts them
	clock   int64    // the server's
}

// refusals are the error codes with which a server refuses writes from any user.
var refusals = []string{"NOREPLICAS", "READONLY", "MISCONF", "OOM"}

// lacksReplicas reports whether the master refuses writes because too few replicas keep up.
func (t trial) lacksReplicas() bool { return strings.HasPrefix(t.refused, "NOREPLICAS") }

// tryCommands runs every command once.
func (s *Store) tryCommands(ctx context.Context) (t trial, err error) {
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return t, err
	}
	defer cancel()
	of := "doctor/" + strconv.FormatInt(time.Now().UnixNano(), 36)
	reply, err := s.run(ctx, s.scripts.Doctor, []string{s.key(of, "m"), s.key(of, "z"), s.key(of, "l")}).Slice()
	if err != nil {
		return t, s.fault("try the commands", err)
	}
	t.clock = numberAt(reply, 0)
	for i := 1; i+1 < len(reply); i += 2 {
		why := strings.TrimPrefix(text(reply, i+1), "-")
		if code, _, _ := strings.Cut(why, " "); slices.Contains(refusals, code) {
			t.refused = why
		} else {
			t.denied = append(t.denied, "+"+text(reply, i))
		}
	}
	return t, nil
}

// permissionFindings reports a trial. told: another finding reports already that too few
// replicas keep up.
func (s *Store) permissionFindings(t trial, told bool) []driver.Finding {
	f := driver.Finding{Check: "permissions", Level: driver.OK, Says: "the user may run every command needed"}
	switch {
	case len(t.denied) > 0:
		f.Level, f.Advice = driver.Fault, "grant the user "+strings.Join(t.denied, " ")
		f.Says = fmt.Sprintf("the user may not run %s on keys of the prefix %s", strings.Join(t.denied, " "), s.prefix)
	case t.refused != "":
		f.Level, f.Says = driver.Warning, "not every command could be tried, because the server refuses writes"
		f.Advice = "run doctor again once it accepts them"
	}
	refused := driver.Finding{Check: "writes", Level: driver.Fault, Says: "the server refuses writes: " + t.refused, Advice: "fix what it says"}
	switch {
	case t.refused == "", t.lacksReplicas() && told:
		return []driver.Finding{f}
	case t.lacksReplicas():
		refused.Says, refused.Advice = "the master refuses writes: fewer replicas keep up than min-replicas-to-write asks for", startReplica
	case strings.HasPrefix(t.refused, "READONLY"):
		refused.Advice = "name the master in the URL, or its sentinels by redis+sentinel://"
	}
	return []driver.Finding{f, refused}
}

// clockFinding judges a difference in µs between the clocks.
func clockFinding(ahead int64) driver.Finding {
	f := driver.Finding{Check: "clock", Level: driver.OK, Says: fmt.Sprintf("the server's clock minus this machine's is %s", (time.Duration(ahead) * time.Microsecond).Round(10*time.Microsecond))}
	switch {
	case max(ahead, -ahead) > driver.ClockTolerance:
		f.Level, f.Advice = driver.Fault, "synchronise both clocks (NTP): the store refuses calls if the server's clock jumps ahead this far"
	case max(ahead, -ahead) > driver.ClockTolerance/10:
		f.Level, f.Advice = driver.Warning, "synchronise both clocks (NTP)"
	}
	return f
}

// latency measures empty scripts.
func (s *Store) latency(ctx context.Context) driver.Finding {
	var took []time.Duration
	for range probes {
		began := time.Now()
		if err := s.Ping(ctx); err != nil {
			return driver.Finding{Check: "latency", Level: driver.Fault, Says: err.Error(), Advice: "repair the network or the server: it answered before, and no longer does"}
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	f := driver.Finding{Check: "latency", Level: driver.OK, Says: fmt.Sprintf("median %s, maximum %s, of a timeout of %s", took[probes/2].Round(10*time.Microsecond), took[probes-1].Round(10*time.Microsecond), s.timeout)}
	switch near := took[0]; {
	case usualTrips*near > s.timeout/2:
		f.Level, f.Advice = driver.Warning, distanceAdvice(near)
	case took[probes-1] > s.timeout/2:
		f.Level, f.Advice = driver.Warning, "find out what keeps the server or this machine busy, or raise [store] timeout"
	}
	return f
}

// tripsToSpare is how many round trips to a far server a timeout should have room for: those of a
// first call, and as many again for an answer that is lost.
const tripsToSpare = 2 * usualTrips

// distanceAdvice is what to do about a server whose answers take as long as near.
func distanceAdvice(near time.Duration) string {
	return fmt.Sprintf("the server is %s away, and a new process needs up to %d round trips for its first call: set [store] timeout to %s or more, move the server nearer, or charge through a daemon, which stays connected",
		near.Round(time.Millisecond), usualTrips, (tripsToSpare * near).Round(10*time.Millisecond))
}
