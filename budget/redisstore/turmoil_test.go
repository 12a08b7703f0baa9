package redisstore_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// flush empties a server's memory of scripts.
func flush(t *testing.T, admin *redis.Client) {
	t.Helper()
	must.Do(t, admin.ScriptFlush(t.Context()).Err())
}

// keysOf are a budget's keys on one server.
func keysOf(t *testing.T, admin *redis.Client, budget string) []string {
	t.Helper()
	return must.Get(admin.Keys(t.Context(), "quotactl:v1:{"+budget+"}:*").Result())(t)
}

// onlyOn wants a budget's keys on one of the servers and on no other, and
// returns its place.
func onlyOn(t *testing.T, admins []*redis.Client, budget string) int {
	t.Helper()
	at := -1
	for i, admin := range admins {
		if len(keysOf(t, admin, budget)) == 0 {
			continue
		}
		if at >= 0 {
			t.Fatalf("%s has keys on servers %d and %d", budget, at, i)
		}
		at = i
	}
	if at < 0 {
		t.Fatalf("%s has no keys", budget)
	}
	return at
}

// Slots move from node to node with their budgets while clients charge, and
// scripts are flushed.
func TestClusterSlotsMove(t *testing.T) {
	t.Parallel()
	n := startCluster(t, 3, nil)
	var budgets []string
	for i := range 4 {
		budgets = append(budgets, fmt.Sprint("up/key", i))
	}
	s := startSwarm(t, n.url(), budgets...)
	s.goesOn("at first", budgets...)
	for _, name := range budgets {
		slot := n.slotOf(t, name)
		from := n.owner(t, slot)
		to := (from + 1) % len(n.admins)
		n.move(t, slot, from, to, func() {
			flush(t, n.admins[to])
			before := s.attempts()
			redistest.Await(t, "clients ask between two keys", func() bool { return s.attempts() > before+swarmClients })
		})
		s.goesOn("after the slot of "+name+" has moved", name)
		must.Equal(t, onlyOn(t, n.admins, name), to, name, "is on node")
	}
	s.stop()
	for _, name := range budgets {
		admin := n.admins[onlyOn(t, n.admins, name)]
		if missing := s.settle(name, func() map[string]int64 { return ledgerOf(t, admin, name) }); len(missing) > 0 {
			t.Errorf("%s lost %v", name, missing)
		}
	}
}

// One of three shards is killed while clients charge: its budgets are out of
// reach, the others go on, and none begins anew elsewhere.
func TestRingShardIsKilled(t *testing.T) {
	t.Parallel()
	var shards []*redistest.Server
	var admins []*redis.Client
	var addresses, budgets []string
	for range 3 {
		shard := redistest.Start(t)
		admin := shard.Client()
		shards, admins, addresses = append(shards, shard), append(admins, admin), append(addresses, shard.Addr)
	}
	for i := range 9 {
		budgets = append(budgets, fmt.Sprint("up/key", i))
	}
	s := startSwarm(t, "redis+ring://"+strings.Join(addresses, ","), budgets...)
	s.goesOn("at first", budgets...)
	at := map[string]int{}
	for _, name := range budgets {
		at[name] = onlyOn(t, admins, name)
	}
	dead := at[budgets[0]]
	living := slices.DeleteFunc(slices.Clone(budgets), func(name string) bool { return at[name] == dead })
	if len(living) == 0 {
		t.Fatalf("all budgets are on one shard: %v", at)
	}
	shards[dead].Kill()
	flush(t, admins[at[living[0]]])
	lastCalls := map[string]int{}
	for _, name := range budgets {
		s.budgets[name].away.Store(0)
		lastCalls[name] = len(s.budgets[name].upstream.calls())
	}
	s.goesOn("without one shard", living...)
	for _, name := range budgets {
		if at[name] == dead {
			redistest.Await(t, name+" is reported out of reach", func() bool { return s.budgets[name].away.Load() > swarmClients })
		}
	}
	s.stop()
	for _, name := range budgets {
		if at[name] != dead {
			admin := admins[at[name]]
			if missing := s.settle(name, func() map[string]int64 { return ledgerOf(t, admin, name) }); len(missing) > 0 {
				t.Errorf("%s lost %v", name, missing)
			}
			continue
		}
		// What had been answered when the server died may be called just after.
		if n := len(s.budgets[name].upstream.calls()); n > lastCalls[name]+swarmClients {
			t.Errorf("%s was granted %d calls without its shard", name, n-lastCalls[name])
		}
		for i, admin := range admins {
			if i != dead && len(keysOf(t, admin, name)) > 0 {
				t.Errorf("%s began anew on shard %d", name, i)
			}
		}
	}
}

// The master dies while clients charge, and its replica takes over.
//
// Replication is asynchronous, so what the master acknowledged last may be
// lost. Asserted is: nothing but the newest is lost, that is, all that was
// granted before a charge that the new master has is there too; nothing granted
// by the new master is lost; and the upstream sees in any window at most what is
// lost above the limit.
func TestSentinelFailsOver(t *testing.T) {
	t.Parallel()
	failsOver(t, func(master *redistest.Server) { master.Kill() }, func(*redistest.Server) {})
}

// The master stands still and is replaced. When it goes on, still a master for a
// while, it finds requests waiting, and charges none of them.
func TestSentinelReplacesStoppedMaster(t *testing.T) {
	t.Parallel()
	newest := int64(0)
	failsOver(t, func(master *redistest.Server) {
		stop(t, master)
		newest = time.Now().UnixMicro()
	}, func(master *redistest.Server) {
		goOn(t, master)
		admin := master.Client()
		var role *redis.Cmd
		var entries *redis.MapStringStringCmd
		redistest.Await(t, "the old master's answer", func() bool { // it comes after what came before
			_, err := admin.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
				role, entries = p.Do(t.Context(), "ROLE"), p.HGetAll(t.Context(), "quotactl:v1:{"+name+"}:e")
				return nil
			})
			return err == nil
		})
		if is := role.Val().([]any)[0]; is != "master" {
			t.Logf("it became a %s before it could be asked", is)
			return
		}
		for id, at := range starts(t, entries.Val()) {
			if at > newest {
				t.Errorf("the old master charged %s when it went on", id)
			}
		}
	})
}

func failsOver(t *testing.T, leave, comeBack func(master *redistest.Server)) {
	t.Helper()
	// The sentinel takes the master for dead only once it is: a machine that stood still has not
	// lost it.
	r := startReplicated(t, nil, "down-after-milliseconds %s 3600000", "failover-timeout %s 5000")
	admin, sentinel := r.replica.Client(), r.sentinel.Client()
	s := startSwarm(t, r.url(), name)
	s.goesOn("at first", name)
	leave(r.master)
	must.Do(t, sentinel.Do(t.Context(), "SENTINEL", "SET", "mymaster", "down-after-milliseconds", "500").Err())
	left, err := admin.Time(t.Context()).Result() // parts what the old master granted from what the new one did
	must.Do(t, err)
	redistest.Await(t, "the replica is the master", func() bool {
		return strings.Contains(info(admin, "replication"), "role:master")
	})
	s.goesOn("on the new master", name)
	comeBack(r.master)
	flush(t, admin)
	s.goesOn("with its scripts flushed", name)
	s.stop()
	host, port, _ := net.SplitHostPort(r.replica.Addr)
	told, err := sentinel.Do(context.Background(), "SENTINEL", "get-master-addr-by-name", "mymaster").StringSlice()
	if err != nil || !slices.Equal(told, []string{host, port}) {
		t.Errorf("the sentinel tells of %v, %v", told, err)
	}
	b := s.budgets[name]
	var held map[string]int64
	missing := s.settle(name, func() map[string]int64 {
		held = ledgerOf(t, admin, name)
		return held
	})
	newestKept := int64(0)
	for id := range held {
		if at := b.granted[id]; at < left.UnixMicro() {
			newestKept = max(newestKept, at)
		}
	}
	for _, id := range missing {
		if at := b.granted[id]; at <= newestKept || at >= left.UnixMicro() {
			t.Errorf("%s, granted at %d, is lost, though the new master has one of %d, and the old one left at %d", id, at, newestKept, left.UnixMicro())
		}
	}
	if b.away.Load() == 0 {
		t.Error("no client noticed the failover")
	}
}
