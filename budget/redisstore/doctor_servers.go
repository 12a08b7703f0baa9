package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quotactl/quotactl/budget/driver"
)

// asSomebody is the advice for a setting that the user may not read.
const asSomebody = "run doctor once as a user with +info and +config|get, or look at the provider's settings"

// ofReplica is the advice for a replica that does not answer.
const ofReplica = "make sure that it runs, and that hosts reach it at this address: it may become the master"

// servers reports each server that may hold a ledger.
func (s *Store) servers(ctx context.Context) []driver.Finding {
	var list []driver.Finding
	look := func(at place) func(ctx context.Context, c *redis.Client) error {
		return func(ctx context.Context, c *redis.Client) error {
			list = append(list, s.masterFindings(ctx, c, at)...)
			return nil
		}
	}
	var err error
	switch c := s.client.(type) {
	case *redis.ClusterClient:
		err = inTurn(ctx, c.ForEachMaster, look(place{mode: cluster}))
	case *redis.Ring:
		err = inTurn(ctx, c.ForEachShard, look(place{mode: ring}))
	case *redis.Client:
		err = look(place{mode: single})(ctx, c)
	case *sentinels:
		at := place{mode: sentinel}
		at.replaced, list = c.findings(ctx)
		var master *redis.Client
		if master, err = c.current(ctx); err == nil {
			err = look(at)(ctx, master)
		}
	}
	if err != nil {
		err = s.fault("look at the servers", err)
		list = append(list, driver.Finding{Check: "servers", Level: driver.Fault, Says: err.Error(), Advice: s.adviceOn(err)})
	}
	return list
}

// place is the setup that a server is part of.
type place struct {
	mode     mode
	replaced time.Duration // how long until a master that does not answer is replaced; 0: not known
}

// inTurn makes the library's concurrent visits one at a time.
func inTurn(ctx context.Context, each func(context.Context, func(context.Context, *redis.Client) error) error, visit func(context.Context, *redis.Client) error) error {
	turn := make(chan struct{}, 1)
	return each(ctx, func(ctx context.Context, c *redis.Client) error {
		turn <- struct{}{}
		defer func() { <-turn }()
		return visit(ctx, c)
	})
}

// masterFindings reports a server and its replicas, any of which may become the master.
func (s *Store) masterFindings(ctx context.Context, c *redis.Client, at place) []driver.Finding {
	addr := c.Options().Addr
	field, f := infoOf(ctx, c, addr, driver.Fault, deadAdvice(at.mode))
	if f != nil {
		return []driver.Finding{*f}
	}
	if at.mode == cluster {
		if ms, err := strconv.Atoi(configOf(ctx, c, "cluster-node-timeout")); err == nil {
			at.replaced = time.Duration(ms) * time.Millisecond
		}
	}
	list := append(dataFindings(ctx, c, addr, field), replicaFinding(addr, field, guardOf(ctx, c), at))
	if at.mode == cluster {
		list = append(list, coverageFinding(addr, configOf(ctx, c, "cluster-require-full-coverage")))
	}
	replicas := replicasOf(field)
	for _, replica := range replicas {
		r := redis.NewClient(s.options(replica))
		addr := "the replica " + replica
		if field, f := infoOf(ctx, r, addr, driver.Warning, ofReplica); f != nil {
			list = append(list, *f)
		} else {
			list = append(append(list, dataFindings(ctx, r, addr, field)...), promotedFinding(addr, len(replicas), guardOf(ctx, r), at))
		}
		_ = r.Close() // nothing is under way
	}
	return list
}

// deadAdvice is the advice for a server that does not answer.
func deadAdvice(m mode) string {
	if m == ring {
		return "start it again with its data, and leave it in the URL: its budgets are out of reach until it is back, and without it they would begin anew on other shards; the other shards serve theirs"
	}
	return "start it again, or have one of its replicas promoted: its budgets are out of reach until then"
}

// infoOf asks a server for INFO. It returns a finding if the server refuses, or, with the
// given level and advice, if it does not answer.
func infoOf(ctx context.Context, c *redis.Client, addr string, away driver.Severity, advice string) (map[string]string, *driver.Finding) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout+slack)
	defer cancel()
	text, err := c.Info(ctx, "server", "memory", "persistence", "replication").Result()
	switch {
	case err == nil:
		return fields(text), nil
	case hasAnyCode(err, []string{"WRONGPASS", "NOAUTH"}):
		return nil, &driver.Finding{
			Check: "server", Level: driver.Fault, Says: fmt.Sprintf("%s rejects this user: %v", addr, err),
			Advice: "give it the users and passwords of the others: Redis does not replicate them, and this server would refuse every call as the master",
		}
	case isAnswer(err):
		return nil, &driver.Finding{
			Check: "server", Level: driver.Warning, Advice: asSomebody,
			Says: fmt.Sprintf("%s does not show its version, persistence, eviction and replicas: %v", addr, err),
		}
	}
	return nil, &driver.Finding{
		Check: "server", Level: away, Says: fmt.Sprintf("%s does not answer: %v", addr, err), Advice: advice,
	}
}

// configOf is a setting of a server; empty if the user may not read it.
func configOf(ctx context.Context, c *redis.Client, key string) string {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout+slack)
	defer cancel()
	values, err := c.ConfigGet(ctx, key).Result()
	if err != nil {
		return ""
	}
	return values[key]
}

// dataFindings reports the version, persistence and eviction of a master or replica.
func dataFindings(ctx context.Context, c *redis.Client, addr string, field map[string]string) []driver.Finding {
	return []driver.Finding{versionFinding(addr, field), persistenceFinding(addr, field, configOf(ctx, c, "appendfsync")), evictionFinding(addr, field)}
}

// replicasOf are the addresses of the replicas that a master lists.
func replicasOf(field map[string]string) []string {
	var list []string
	for i := 0; ; i++ {
		line, more := field["slave"+strconv.Itoa(i)] // ip=…,port=…,state=…
		if !more {
			return list
		}
		part := map[string]string{}
		for _, pair := range strings.Split(line, ",") {
			key, value, _ := strings.Cut(pair, "=")
			part[key] = value
		}
		list = append(list, net.JoinHostPort(part["ip"], part["port"]))
	}
}

// fields parses the reply to INFO.
func fields(info string) map[string]string {
	field := map[string]string{}
	for line := range strings.Lines(info) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			field[key] = value
		}
	}
	return field
}

// triedText lists the versions in tried.
func triedText() string {
	var list []string
	for _, kind := range slices.Sorted(maps.Keys(tried)) {
		list = append(list, kind+" "+strings.Join(tried[kind], ", "))
	}
	return strings.Join(list, " and ")
}

func versionFinding(addr string, field map[string]string) driver.Finding {
	kind, version := "Redis", field["redis_version"]
	if v := field["valkey_version"]; v != "" {
		kind, version = "Valkey", v
	}
	f := driver.Finding{Check: "version", Level: driver.OK, Says: fmt.Sprintf("%s is %s %s, %s", addr, kind, version, cmp.Or(field["redis_mode"], field["server_mode"]))}
	major, _, _ := strings.Cut(version, ".")
	if !slices.Contains(tried[kind], major) {
		f.Level, f.Advice = driver.Warning, "this program was tested on "+triedText()+" only: try it before you rely on it"
	}
	return f
}

func persistenceFinding(addr string, field map[string]string, fsync string) driver.Finding {
	if field["aof_enabled"] != "1" {
		return driver.Finding{
			Check: "persistence", Level: driver.Warning, Says: addr + " keeps no append-only file: it loses what it acknowledged when it is killed",
			Advice: "set appendonly yes; until then hosts notice a loss and record what they had seen",
		}
	}
	survives := map[string]string{
		"always": "; what it acknowledged survives a loss of power", "everysec": "; a loss of power may cost the last second", "no": "; a loss of power may cost half a minute",
	}[fsync]
	return driver.Finding{Check: "persistence", Level: driver.OK, Says: addr + " keeps an append-only file, so that what it acknowledged survives a kill" + survives}
}

func evictionFinding(addr string, field map[string]string) driver.Finding {
	f := driver.Finding{Check: "eviction", Level: driver.OK, Says: fmt.Sprintf("%s has policy %s", addr, field["maxmemory_policy"])}
	switch {
	case field["maxmemory_policy"] == "noeviction":
	case field["maxmemory"] == "0":
		f.Level, f.Advice = driver.Warning, "set maxmemory-policy noeviction before anyone sets maxmemory: it would evict ledgers first"
	default:
		f.Level, f.Advice = driver.Fault, "set maxmemory-policy noeviction: ledgers expire, so Redis evicts them first"
	}
	return f
}

func coverageFinding(addr, needed string) driver.Finding {
	f := driver.Finding{Check: "coverage", Level: driver.OK, Says: addr + " serves its slots while others have no master"}
	switch needed {
	case "no":
	case "":
		f.Level, f.Says, f.Advice = driver.Warning, addr+" does not show cluster-require-full-coverage", asSomebody+": it should be no"
	default:
		f.Level, f.Says = driver.Warning, addr+" serves nothing while any slot has no master"
		f.Advice = "set cluster-require-full-coverage no: each budget is on one shard, and the other shards can serve theirs when one fails"
	}
	return f
}

func plural(n, what string) string {
	if n == "1" {
		return n + " " + what
	}
	return n + " " + what + "s"
}
