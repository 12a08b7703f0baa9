package redisstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// found is what Diagnose finds of a check.
func found(t *testing.T, list []driver.Finding, check string) driver.Finding {
	t.Helper()
	for _, f := range list {
		if f.Check == check {
			return f
		}
	}
	t.Fatalf("nothing on %s in %+v", check, list)
	return driver.Finding{}
}

// Each thing that may go wrong is found, and what is to be done is said.
func TestDiagnose(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := redistest.Start(t)
	admin := server.Client()
	store := openStore(t, server.URL(0), redisstore.Options{})
	set := func(key, value string) {
		t.Helper()
		must.Do(t, admin.ConfigSet(ctx, key, value).Err())
	}
	expect := func(what, check string, level driver.Severity, says, advice string) {
		t.Helper()
		f := found(t, store.Diagnose(ctx), check)
		if f.Level != level || !strings.Contains(f.Says, says) || !strings.Contains(f.Advice, advice) || level != driver.OK && f.Advice == "" {
			t.Errorf("%s: %+v, want %s saying %q, advising %q", what, f, level, says, advice)
		}
	}
	for _, check := range []string{"connection", "permissions", "clock", "latency", "version", "eviction", "replicas"} {
		expect("a sound server", check, driver.OK, "", "")
	}
	expect("no persistence", "persistence", driver.Warning, "no append-only file", "appendonly yes")
	set("appendonly", "yes")
	expect("append only", "persistence", driver.OK, "may cost the last second", "")
	set("appendfsync", "always")
	expect("synced", "persistence", driver.OK, "survives a loss of power", "")
	set("maxmemory-policy", "volatile-lru")
	expect("a policy that may evict", "eviction", driver.Warning, "volatile-lru", "noeviction")
	set("maxmemory", "100mb")
	expect("a policy that evicts", "eviction", driver.Fault, "volatile-lru", "noeviction")
	host, port, _ := strings.Cut(server.Addr, ":")
	replica := redistest.Start(t, "--replicaof", host, port)
	defer replica.Kill()
	redistest.Await(t, "a replica is there", func() bool {
		info, err := admin.Info(ctx, "replication").Result()
		return err == nil && strings.Contains(info, "state=online")
	})
	expect("a replica nobody waits for", "replicas", driver.Warning, "1 replica, and writes when 0", "min-replicas-to-write 1")
	set("min-replicas-to-write", "1")
	expect("a replica that must keep up", "replicas", driver.OK, "writes when 1", "")
	if n, err := admin.Keys(ctx, "*doctor*").Result(); err != nil || len(n) > 0 {
		t.Fatalf("it left %v, %v", n, err)
	}
	server.Kill()
	if list := store.Diagnose(ctx); len(list) != 1 || list[0].Level != driver.Fault || list[0].Check != "connection" {
		t.Fatalf("of a server that is gone: %+v", list)
	}
}

// A command that may not be run is named.
func TestDiagnoseNamesMissingPermissions(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := redistest.Start(t)
	admin := server.Client()
	for _, missing := range strings.Fields("exists get append hget hmget hset hsetnx hdel hlen hscan zadd zrem zcard zcount zrange zrangebyscore zremrangebyrank pexpireat del") {
		args := []any{"ACL", "SETUSER", "least", "reset", "on", ">secret", "~quotactl:*", "-@all"}
		for _, command := range strings.Fields(redisstore.LeastCommands) {
			if command != missing {
				args = append(args, "+"+command)
			}
		}
		must.Do(t, admin.Do(ctx, args...).Err())
		list := openStore(t, "redis://least:secret@"+server.Addr, redisstore.Options{}).Diagnose(ctx)
		f := found(t, list, "permissions")
		check.Equal(t, f.Level, driver.Fault, "without", missing)
		check.Equal(t, f.Advice, "grant the user +"+missing, "without", missing)
		if server := found(t, list, "server"); server.Level != driver.Warning || !strings.Contains(server.Advice, "+info") {
			t.Errorf("a user that may not ask for INFO: %+v", server)
		}
	}
}

// A server that answers later than the timeout is waited for, so that doctor can name the distance.
func TestDiagnoseFarAway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	must.Do(t, openStore(t, server.URL(0), redisstore.Options{}).Ping(t.Context())) // loads the script
	p := startProxy(t, server.Addr, 1, time.Second)
	p.each.Store(int64(300 * time.Millisecond))
	list := openStore(t, "redis://"+p.addr, redisstore.Options{Timeout: 20 * time.Millisecond}).Diagnose(t.Context())
	if f := found(t, list, "connection"); len(list) != 1 || f.Level != driver.Fault || !strings.Contains(f.Says, "later than the timeout of 20ms") || !strings.Contains(f.Advice, "ms away") {
		t.Errorf("%+v, want the distance", list)
	}
}

// A server of a version that nobody tried is a warning.
func TestUntriedVersions(t *testing.T) {
	t.Parallel()
	for info, want := range map[string]driver.Severity{
		"redis_version:7.0.15\r\nredis_mode:standalone": driver.OK,
		"redis_version:8.0.2\r\nredis_mode:standalone":  driver.OK,
		"redis_version:6.2.1\r\nredis_mode:standalone":  driver.Warning,
		"redis_version:99.1.0\r\nredis_mode:cluster":    driver.Warning,
		"redis_version:7.2.4\r\nvalkey_version:99.0.1":  driver.Warning,

		"redis_version:7.2.4\r\nserver_mode:standalone\r\nvalkey_version:8.1.1": driver.OK,
	} {
		if f := redisstore.VersionFinding("host:1", info); f.Level != want || want != driver.OK && !strings.Contains(f.Advice, "tested on") {
			t.Errorf("%q: %+v", info, f)
		}
	}
	if clock := redisstore.ClockFinding(61_000_000); clock.Level != driver.Fault || !strings.Contains(clock.Says, "1m1s") {
		t.Error(fmt.Sprint(clock))
	}
	if clock := redisstore.ClockFinding(-7_000_000); clock.Level != driver.Warning {
		t.Error(fmt.Sprint(clock))
	}
}
