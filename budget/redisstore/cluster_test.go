package redisstore_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// slots is how many a cluster has.
const slots = 16384

// nodes are the masters of a cluster, each with a third (or so) of the slots.
type nodes struct {
	servers []*redistest.Server
	admins  []*redis.Client
	ids     []string
	before  []*proxy // none, or one before each
}

func (n *nodes) url() string {
	var addresses []string
	for i, s := range n.servers {
		if n.before != nil {
			addresses = append(addresses, n.before[i].addr)
		} else {
			addresses = append(addresses, s.Addr)
		}
	}
	return "redis+cluster://" + strings.Join(addresses, ",")
}

// nodeTimeout is how long a node may be silent before the others take it for dead, in ms: longer
// than a machine stands still, since the tests say who takes whose place.
const nodeTimeout = "120000"

// startCluster starts a cluster of so many masters, and waits until all of them
// know it whole. Where proxies stand before them, those are what it announces.
func startCluster(t testing.TB, size int, before []*proxy) *nodes {
	t.Helper()
	n := &nodes{before: before}
	for i := range size {
		s := redistest.Start(t, "--cluster-enabled", "yes", "--cluster-node-timeout", nodeTimeout)
		admin := s.Client()
		n.servers, n.admins = append(n.servers, s), append(n.admins, admin)
		do := func(args ...any) {
			t.Helper()
			if err := admin.Do(t.Context(), args...).Err(); err != nil {
				t.Fatal(args, err)
			}
		}
		if before != nil {
			before[i].target.Store(&s.Addr)
			host, port, _ := net.SplitHostPort(before[i].addr)
			do("CONFIG", "SET", "cluster-announce-ip", host)
			do("CONFIG", "SET", "cluster-announce-port", port)
		}
		do("CLUSTER", "SET-CONFIG-EPOCH", i+1)
		must.Do(t, admin.ClusterAddSlotsRange(t.Context(), slots*i/size, slots*(i+1)/size-1).Err())
		id := must.Get(admin.Do(t.Context(), "CLUSTER", "MYID").Text())(t)
		n.ids = append(n.ids, id)
		if i > 0 {
			host, port, _ := net.SplitHostPort(n.servers[0].Addr)
			do("CLUSTER", "MEET", host, port)
		}
	}
	for i, admin := range n.admins {
		redistest.Await(t, fmt.Sprint("node ", i, " knows the cluster"), func() bool { return n.whole(admin) })
	}
	return n
}

// whole reports whether a node serves and knows every node by its address.
func (n *nodes) whole(admin *redis.Client) bool {
	state, err := admin.ClusterInfo(context.Background()).Result()
	if err != nil || !strings.Contains(state, "cluster_state:ok") {
		return false
	}
	table, err := admin.ClusterNodes(context.Background()).Result()
	if err != nil {
		return false
	}
	known := map[string]bool{}
	for _, line := range strings.Split(strings.TrimSpace(table), "\n") { // id address@bus …
		address, _, _ := strings.Cut(strings.Fields(line)[1], "@")
		known[address] = true
	}
	for _, address := range strings.Split(strings.TrimPrefix(n.url(), "redis+cluster://"), ",") {
		if !known[address] {
			return false
		}
	}
	return len(known) == len(n.servers)
}

// slotOf is the slot of a budget's keys.
func (n *nodes) slotOf(t testing.TB, budget string) int {
	t.Helper()
	slot := must.Get(n.admins[0].ClusterKeySlot(t.Context(), "{"+budget+"}").Result())(t)
	return int(slot)
}

// owner is the place of the node that serves a slot.
func (n *nodes) owner(t testing.TB, slot int) int {
	t.Helper()
	for i, admin := range n.admins {
		reply, err := admin.Do(t.Context(), "CLUSTER", "COUNTKEYSINSLOT", slot).Int()
		if err == nil && reply > 0 {
			return i
		}
	}
	t.Fatalf("no node has keys of slot %d", slot)
	return -1
}

// move moves one slot with all its keys, as resharding does: a few keys at a
// time, between which clients come in.
func (n *nodes) move(t testing.TB, slot, from, to int, between func()) {
	t.Helper()
	ctx := t.Context()
	do := func(node int, args ...any) {
		t.Helper()
		if err := n.admins[node].Do(ctx, args...).Err(); err != nil {
			t.Fatal(args, err)
		}
	}
	do(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", n.ids[from])
	do(from, "CLUSTER", "SETSLOT", slot, "MIGRATING", n.ids[to])
	host, port, _ := net.SplitHostPort(n.servers[to].Addr)
	number, _ := strconv.Atoi(port)
	for {
		keys := must.Get(n.admins[from].ClusterGetKeysInSlot(ctx, slot, 1).Result())(t)
		if len(keys) == 0 {
			break
		}
		between()
		do(from, "MIGRATE", host, number, keys[0], 0, 5000)
	}
	between()
	do(to, "CLUSTER", "SETSLOT", slot, "NODE", n.ids[to])
	do(from, "CLUSTER", "SETSLOT", slot, "NODE", n.ids[to])
}

// addReplica adds a replica of one of the masters, and waits until it holds what
// that one holds.
func (n *nodes) addReplica(t testing.TB, of int) *redistest.Server {
	t.Helper()
	replica := redistest.Start(t, "--cluster-enabled", "yes", "--cluster-node-timeout", nodeTimeout, "--repl-diskless-sync-delay", "0")
	admin := replica.Client()
	host, port, _ := net.SplitHostPort(n.servers[of].Addr)
	must.Do(t, admin.Do(t.Context(), "CLUSTER", "MEET", host, port).Err())
	redistest.Await(t, "the new node takes the replica's part", func() bool {
		return admin.Do(context.Background(), "CLUSTER", "REPLICATE", n.ids[of]).Err() == nil
	})
	redistest.Await(t, "the replica follows", func() bool {
		master, err := n.admins[of].Info(context.Background(), "replication").Result()
		return err == nil && strings.Contains(master, "state=online") && strings.Contains(info(admin, "replication"), "master_link_status:up")
	})
	for i, node := range n.admins {
		redistest.Await(t, fmt.Sprint("node ", i, " knows the replica"), func() bool {
			table, err := node.ClusterNodes(context.Background()).Result()
			return err == nil && strings.Contains(table, replica.Addr) && strings.Contains(table, "slave "+n.ids[of])
		})
	}
	return replica
}

// promote makes a replica the master in place of one that is gone, and waits
// until the others know it.
func (n *nodes) promote(t testing.TB, gone int, replica *redistest.Server) {
	t.Helper()
	admin := replica.Client()
	must.Do(t, admin.Do(t.Context(), "CLUSTER", "FAILOVER", "TAKEOVER").Err())
	for i, node := range append(slices.Clone(n.admins), admin) {
		if i == gone {
			continue
		}
		redistest.Await(t, fmt.Sprint("node ", i, " knows the new master"), func() bool { return n.master(node, replica.Addr) })
	}
}

// master reports whether a node takes an address for a master with slots.
func (n *nodes) master(node *redis.Client, address string) bool {
	table, err := node.ClusterNodes(context.Background()).Result()
	return err == nil && slices.ContainsFunc(strings.Split(table, "\n"), func(line string) bool {
		fields := strings.Fields(line) // id address@bus flags … state slots
		return len(fields) > 8 && strings.HasPrefix(fields[1], address+"@") && strings.Contains(fields[2], "master")
	})
}
