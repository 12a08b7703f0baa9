package redisstore_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/redistest"
)

// wants is a finding that there must be, on a server.
type wants struct {
	check        string
	level        driver.Severity
	says, advice string
}

// expectFindings looks for findings: one of the check that says so.
func expectFindings(t *testing.T, what string, list []driver.Finding, want ...wants) {
	t.Helper()
	for _, w := range want {
		seen := false
		for _, f := range list {
			if f.Check == w.check && strings.Contains(f.Says, w.says) {
				seen = true
				if f.Level != w.level || !strings.Contains(f.Advice, w.advice) || f.Level != driver.OK && f.Advice == "" {
					t.Errorf("%s: %+v, want %s that advises %q", what, f, w.level, w.advice)
				}
			}
		}
		if !seen {
			t.Errorf("%s: nothing on %s says %q: %+v", what, w.check, w.says, list)
		}
	}
}

// A replica takes its master's place, so it is looked at too; and the master must
// stop writing when it has none in reach.
func TestDiagnoseReplicas(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	host, port, _ := strings.Cut(server.Addr, ":")
	replica := redistest.Start(t, "--replicaof", host, port)
	admin := server.Client()
	redistest.Await(t, "a replica is there", func() bool { return strings.Contains(info(admin, "replication"), "state=online") })
	store := openStore(t, server.URL(0), redisstore.Options{})
	of := "the replica " + replica.Addr
	expectFindings(t, "a replica without anything", store.Diagnose(t.Context()),
		wants{"version", driver.OK, of, ""},
		wants{"persistence", driver.Warning, of, "appendonly yes"},
		wants{"eviction", driver.OK, of, ""},
		wants{"replicas", driver.Warning, server.Addr + " has 1 replica, and writes when 0", "set min-replicas-to-write 1 and min-replicas-max-lag 10"})
	configure(t, replica, "appendonly", "yes", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru")
	configure(t, server, "min-replicas-to-write", "1", "min-replicas-max-lag", "0")
	expectFindings(t, "a replica that evicts, and no bound", store.Diagnose(t.Context()),
		wants{"persistence", driver.OK, of, ""},
		wants{"eviction", driver.Fault, of, "noeviction"},
		wants{"replicas", driver.Warning, "1 replica", "min-replicas-max-lag 10"})
	configure(t, server, "min-replicas-max-lag", "11")
	expectFindings(t, "a long lag", store.Diagnose(t.Context()), wants{"replicas", driver.Warning, "within 11 s", "min-replicas-max-lag 10"})
	configure(t, server, "min-replicas-max-lag", "10")
	expectFindings(t, "a short lag", store.Diagnose(t.Context()), wants{"replicas", driver.OK, "when 1 of them keep up within 10 s", ""})

	// A user who may not look is told so, and nothing else fails.
	expectFindings(t, "a user without CONFIG", openStore(t, leastURL(t, server, "quotactl:*", "info"), redisstore.Options{}).Diagnose(t.Context()),
		wants{"replicas", driver.Warning, "does not show min-replicas-to-write", "+config|get"},
		wants{"server", driver.Fault, of + " rejects this user", "does not replicate"})
	leastURL(t, replica, "quotactl:*", "")
	expectFindings(t, "a user without INFO", openStore(t, leastURL(t, server, "quotactl:*", "info"), redisstore.Options{}).Diagnose(t.Context()),
		wants{"server", driver.Warning, of + " does not show", "+info"})

	gone := redistest.FreeAddress(t)
	_, gonePort, _ := strings.Cut(gone, ":")
	replica.Kill()
	redistest.Start(t, "--replicaof", host, port, "--replica-announce-port", gonePort)
	redistest.Await(t, "a replica is announced", func() bool { return strings.Contains(info(admin, "replication"), "port="+gonePort) })
	expectFindings(t, "a replica out of reach", store.Diagnose(t.Context()), wants{"server", driver.Warning, gone + " does not answer", "that hosts reach it"})
}

// With Sentinel the server is named by its address; a lone sentinel, a quorum of
// one, sentinels that do not agree or answer, and a master without a replica are
// found. A master that was cut off must stop before it is replaced.
func TestDiagnoseSentinels(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	sentinel := watch(t, server.Addr, "down-after-milliseconds %s 4000")
	store := openStore(t, "redis+sentinel://"+sentinel.Addr+"/mymaster", redisstore.Options{})
	expectFindings(t, "a lone sentinel", store.Diagnose(t.Context()),
		wants{"sentinel", driver.Warning, sentinel.Addr + " names the master " + server.Addr + ", and knows 1 sentinel", "run three"},
		wants{"version", driver.OK, server.Addr + " is ", ""},
		wants{"replicas", driver.Warning, server.Addr + " has no replica", "add one"})
	host, port, _ := strings.Cut(server.Addr, ":")
	redistest.Start(t, "--replicaof", host, port)
	admin := server.Client()
	redistest.Await(t, "a replica is there", func() bool { return strings.Contains(info(admin, "replication"), "state=online") })
	configure(t, server, "min-replicas-to-write", "1", "min-replicas-max-lag", "4")
	expectFindings(t, "a lag as long as the patience of the sentinels", store.Diagnose(t.Context()), wants{"replicas", driver.Warning, "within 4 s", "min-replicas-max-lag 3"})
	configure(t, server, "min-replicas-max-lag", "3")
	expectFindings(t, "a shorter one", store.Diagnose(t.Context()), wants{"replicas", driver.OK, "within 3 s", ""})

	sound := func(state ...string) []*fakeSentinel {
		list := []*fakeSentinel{startFakeSentinel(t, server.Addr), startFakeSentinel(t, server.Addr), startFakeSentinel(t, server.Addr)}
		for i, f := range list {
			f.state = append([]string{"num-other-sentinels", "2", "down-after-milliseconds", "30000"}, state...)
			f.says(server.Addr, 1, list[(i+1)%3].Addr().String(), list[(i+2)%3].Addr().String())
		}
		return list
	}
	diagnose := func(list []*fakeSentinel) []driver.Finding {
		return openStore(t, "redis+sentinel://"+list[0].Addr().String()+"/mymaster", redisstore.Options{}).Diagnose(t.Context())
	}
	three := sound("quorum", "2")
	for _, f := range three {
		expectFindings(t, "three sentinels", diagnose(three), wants{"sentinel", driver.OK, f.Addr().String() + " names the master " + server.Addr + ", and knows 3 sentinels; 2 of them", ""})
	}
	three[1].says("127.0.0.1:1", 1)
	expectFindings(t, "sentinels that do not agree", diagnose(three), wants{"sentinel", driver.Fault, three[1].Addr().String() + " name 127.0.0.1:1", "repair the network"})
	gone := three[1].Addr().String()
	three[1].Close()
	expectFindings(t, "a sentinel that is gone", diagnose(three), wants{"sentinel", driver.Warning, "ask the sentinel " + gone, "start it"})
	expectFindings(t, "a quorum of one", diagnose(sound("quorum", "1")), wants{"sentinel", driver.Warning, "1 of them", "SENTINEL SET mymaster quorum 2"})

	server.Kill()
	list := diagnose(sound("quorum", "2"))
	expectFindings(t, "a master that is gone", list, wants{"connection", driver.Fault, server.Addr, "server runs"}, wants{"sentinel", driver.OK, "names the master " + server.Addr, ""})
}

// Masters of a cluster without a replica, and one that stops when any of the
// others is gone, are found; also for a user that may not see which.
func TestDiagnoseCluster(t *testing.T) {
	t.Parallel()
	n := startCluster(t, 3, nil)
	store := openStore(t, n.url(), redisstore.Options{})
	list := store.Diagnose(t.Context())
	for _, s := range n.servers {
		expectFindings(t, "masters alone", list,
			wants{"replicas", driver.Warning, s.Addr + " has no replica", "add one"},
			wants{"coverage", driver.Warning, s.Addr + " serves nothing while any slot", "cluster-require-full-coverage no"})
		configure(t, s, "cluster-require-full-coverage", "no")
	}
	list = store.Diagnose(t.Context())
	for _, s := range n.servers {
		expectFindings(t, "each for itself", list, wants{"coverage", driver.OK, s.Addr, ""})
		leastURL(t, s, "quotactl:*", redisstore.LeastClusterCommands+" info")
	}
	configure(t, n.servers[0], "min-replicas-to-write", "1", "min-replicas-max-lag", "9")
	n.addReplica(t, 0)
	configure(t, n.servers[0], "cluster-node-timeout", "5000")
	expectFindings(t, "a lag longer than the nodes' patience", store.Diagnose(t.Context()), // of 5 s
		wants{"replicas", driver.Warning, n.servers[0].Addr + " has 1 replica", "min-replicas-max-lag 4"})
	least := openStore(t, strings.Replace(n.url(), "://", "://least:secret@", 1), redisstore.Options{})
	expectFindings(t, "a user without CONFIG", least.Diagnose(t.Context()), wants{"coverage", driver.Warning, "does not show cluster-require-full-coverage", "+config|get"})
}

// A shard of a ring that is down is named, and must stay in the URL. The others
// are looked at, whichever of them the connection was tried with.
func TestDiagnoseRingWithoutShards(t *testing.T) {
	t.Parallel()
	for dead := range 2 {
		t.Run(fmt.Sprint(dead), func(t *testing.T) {
			t.Parallel()
			shards := []*redistest.Server{redistest.Start(t), redistest.Start(t)}
			store := openStore(t, "redis+ring://"+shards[0].Addr+","+shards[1].Addr, redisstore.Options{})
			shards[dead].Kill()
			for range 4 { // the commands are tried on either
				list := store.Diagnose(t.Context())
				expectFindings(t, "one shard is gone", list,
					wants{"server", driver.Fault, shards[dead].Addr + " does not answer", "leave it in the URL"},
					wants{"version", driver.OK, shards[1-dead].Addr, ""})
				for _, f := range list {
					if f.Check != "server" && f.Level == driver.Fault {
						t.Errorf("beside the shard: %+v", f)
					}
				}
			}
			shards[1-dead].Kill()
			check.Equal(t, found(t, store.Diagnose(t.Context()), "connection").Level, driver.Fault, "without any shard")
		})
	}
}
