package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quotactl/quotactl/budget"
)

// LeastCommands are the commands a user needs, on the keys of the prefix.
const LeastCommands = "evalsha eval select time exists del hget hmget hset hdel hlen zadd zrem zcard zcount zrange zrangebyscore zremrangebyrank pexpireat"

// LeastClusterCommands are those that a user of a cluster needs besides.
const LeastClusterCommands = "cluster|slots cluster|shards readonly command"

// tried are the major versions of servers that all tests were run on.
var tried = map[string][]string{"Redis": {"7", "8"}, "Valkey": {"8"}}

// probes is how many empty scripts the latency is taken of.
const probes = 20

// Diagnose connects as any call would and tells what of the servers may keep the
// store from holding what it promises. It spends nothing, and what it writes it
// removes. It stops at the first fault that the rest depends on.
func (s *Store) Diagnose(ctx context.Context) []budget.Finding {
	var list []budget.Finding
	add := func(check string, level budget.Severity, advice, says string, args ...any) {
		list = append(list, budget.Finding{Check: check, Level: level, Says: fmt.Sprintf(says, args...), Advice: advice})
	}
	began := time.Now()
	if err := s.Ping(ctx); err != nil {
		add("connection", budget.Fault, "make sure that the server runs, and that this machine reaches it as this user", "%v", err)
		return list
	}
	add("connection", budget.OK, "", "answers, and runs scripts, after %s", time.Since(began).Round(10*time.Microsecond))
	failed, clock, err := s.tryCommands(ctx)
	if err != nil {
		add("permissions", budget.Fault, "", "%v", err)
		return list
	}
	if len(failed) > 0 {
		add("permissions", budget.Fault, "grant the user "+strings.Join(failed, " "), "the user may not run %s on keys of the prefix %s", strings.Join(failed, " "), s.prefix)
	} else {
		add("permissions", budget.OK, "", "every command that is needed may be run")
	}
	list = append(list, clockFinding(clock-time.Now().UnixMicro()), s.latency(ctx))
	return append(list, s.servers(ctx)...)
}

// tryCommands lists the commands that may not be run, with a plus before each, as
// ACL rules have it; and tells the server's clock.
func (s *Store) tryCommands(ctx context.Context) (failed []string, clock int64, err error) {
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer cancel()
	of := "doctor/" + strconv.FormatInt(time.Now().UnixNano(), 36)
	reply, err := s.run(ctx, s.scripts.doctor, []string{s.key(of, "m"), s.key(of, "z")}).Slice()
	if err != nil {
		return nil, 0, s.fault("try the commands", err)
	}
	for i := 1; i+1 < len(reply); i += 2 {
		failed = append(failed, "+"+text(reply, i))
	}
	return failed, numberAt(reply, 0), nil
}

// clockFinding is what a difference in µs between the clocks means.
func clockFinding(ahead int64) budget.Finding {
	f := budget.Finding{Check: "clock", Level: budget.OK, Says: fmt.Sprintf("the server's clock less this machine's is %s", (time.Duration(ahead) * time.Microsecond).Round(10*time.Microsecond))}
	switch {
	case max(ahead, -ahead) > budget.ClockTolerance:
		f.Level, f.Advice = budget.Fault, "set both clocks by the network (NTP): calls are refused when the server's jumps ahead so far"
	case max(ahead, -ahead) > budget.ClockTolerance/10:
		f.Level, f.Advice = budget.Warning, "set both clocks by the network (NTP)"
	}
	return f
}

// latency takes the time of empty scripts.
func (s *Store) latency(ctx context.Context) budget.Finding {
	var took []time.Duration
	for range probes {
		began := time.Now()
		if err := s.Ping(ctx); err != nil {
			return budget.Finding{Check: "latency", Level: budget.Fault, Says: err.Error()}
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	f := budget.Finding{Check: "latency", Level: budget.OK, Says: fmt.Sprintf("%s in the middle and %s at most, of a timeout of %s", took[probes/2].Round(10*time.Microsecond), took[probes-1].Round(10*time.Microsecond), s.timeout)}
	if took[probes-1] > s.timeout/2 {
		f.Level, f.Advice = budget.Warning, "raise [store] timeout, or move the server nearer"
	}
	return f
}

// servers looks at each server that may hold a ledger.
func (s *Store) servers(ctx context.Context) []budget.Finding {
	var list []budget.Finding
	look := func(ctx context.Context, c *redis.Client) error {
		list = append(list, serverFindings(c.Options().Addr, c.Info(ctx, "server", "memory", "persistence", "replication"), func(key string) string {
			values, err := c.ConfigGet(ctx, key).Result()
			if err != nil {
				return ""
			}
			return values[key]
		})...)
		return nil
	}
	var err error
	switch c := s.client.(type) {
	case *redis.ClusterClient:
		err = inTurn(ctx, c.ForEachMaster, look)
	case *redis.Ring:
		err = inTurn(ctx, c.ForEachShard, look)
	case *redis.Client:
		err = look(ctx, c)
	}
	if err != nil {
		list = append(list, budget.Finding{Check: "servers", Level: budget.Fault, Says: s.fault("look at the servers", err).Error()})
	}
	return list
}

// inTurn lets the library's concurrent visits happen one at a time.
func inTurn(ctx context.Context, each func(context.Context, func(context.Context, *redis.Client) error) error, visit func(context.Context, *redis.Client) error) error {
	turn := make(chan struct{}, 1)
	return each(ctx, func(ctx context.Context, c *redis.Client) error {
		turn <- struct{}{}
		defer func() { <-turn }()
		return visit(ctx, c)
	})
}

// serverFindings are what INFO and CONFIG tell of one server; a user may be
// forbidden both.
func serverFindings(addr string, info *redis.StringCmd, config func(key string) string) []budget.Finding {
	text, err := info.Result()
	if err != nil {
		return []budget.Finding{{
			Check: "server", Level: budget.Warning, Says: fmt.Sprintf("%s does not tell its version, persistence, eviction and replicas: %v", addr, err),
			Advice: "run doctor once as a user with +info and +config|get",
		}}
	}
	field := fields(text)
	return []budget.Finding{versionFinding(addr, field), persistenceFinding(addr, field, config("appendfsync")), evictionFinding(addr, field), replicaFinding(addr, field, config("min-replicas-to-write"))}
}

// fields reads what INFO answers.
func fields(info string) map[string]string {
	field := map[string]string{}
	for line := range strings.Lines(info) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			field[key] = value
		}
	}
	return field
}

// triedText lists the versions that were tried.
func triedText() string {
	var list []string
	for _, kind := range slices.Sorted(maps.Keys(tried)) {
		list = append(list, kind+" "+strings.Join(tried[kind], ", "))
	}
	return strings.Join(list, " and ")
}

func versionFinding(addr string, field map[string]string) budget.Finding {
	kind, version := "Redis", field["redis_version"]
	if v := field["valkey_version"]; v != "" {
		kind, version = "Valkey", v
	}
	f := budget.Finding{Check: "version", Level: budget.OK, Says: fmt.Sprintf("%s is %s %s, %s", addr, kind, version, cmp.Or(field["redis_mode"], field["server_mode"]))}
	major, _, _ := strings.Cut(version, ".")
	if !slices.Contains(tried[kind], major) {
		f.Level, f.Advice = budget.Warning, "this program was tried on "+triedText()+" only: try it before you rely on it"
	}
	return f
}

func persistenceFinding(addr string, field map[string]string, fsync string) budget.Finding {
	if field["aof_enabled"] != "1" {
		return budget.Finding{
			Check: "persistence", Level: budget.Warning, Says: addr + " keeps no append-only file: what it acknowledged is lost when it is killed",
			Advice: "set appendonly yes; until then hosts notice a loss and record what they had seen",
		}
	}
	survives := map[string]string{
		"always": "; what it acknowledged survives a loss of power", "everysec": "; a loss of power may cost the last second", "no": "; a loss of power may cost half a minute",
	}[fsync]
	return budget.Finding{Check: "persistence", Level: budget.OK, Says: addr + " keeps an append-only file, so that what it acknowledged survives a kill" + survives}
}

func evictionFinding(addr string, field map[string]string) budget.Finding {
	f := budget.Finding{Check: "eviction", Level: budget.OK, Says: fmt.Sprintf("%s has policy %s", addr, field["maxmemory_policy"])}
	switch {
	case field["maxmemory_policy"] == "noeviction":
	case field["maxmemory"] == "0":
		f.Level, f.Advice = budget.Warning, "set maxmemory-policy noeviction before anyone sets maxmemory: it would evict ledgers first"
	default:
		f.Level, f.Advice = budget.Fault, "set maxmemory-policy noeviction: ledgers expire, so that they are evicted first"
	}
	return f
}

func replicaFinding(addr string, field map[string]string, least string) budget.Finding {
	replicas := field["connected_slaves"]
	f := budget.Finding{Check: "replicas", Level: budget.OK, Says: fmt.Sprintf("%s has %s, and writes when %s of them keep up", addr, plural(replicas, "replica"), least)}
	switch {
	case replicas == "0" || replicas == "":
		f.Says = addr + " has no replica"
	case least == "":
		f.Level, f.Says, f.Advice = budget.Warning, fmt.Sprintf("%s has %s, and does not tell min-replicas-to-write", addr, plural(replicas, "replica")), "run doctor once as a user with +config|get"
	case least == "0":
		f.Level, f.Advice = budget.Warning, "set min-replicas-to-write 1, or a failover may lose the newest charges; hosts notice that and record what they had seen"
	}
	return f
}

func plural(n, what string) string {
	if n == "1" {
		return n + " " + what
	}
	return n + " " + what + "s"
}
