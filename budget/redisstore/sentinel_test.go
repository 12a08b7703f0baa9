package redisstore_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// replicated is a master, a replica and a sentinel that watches them.
type replicated struct {
	master, replica, sentinel *redistest.Server
}

func (r *replicated) url() string { return "redis+sentinel://" + r.sentinel.Addr + "/mymaster" }

// startReplicated starts them. Where the master stands behind a proxy, that
// address is the one the sentinel tells.
func startReplicated(t testing.TB, before *proxy, lines ...string) *replicated {
	t.Helper()
	r := &replicated{master: redistest.Start(t, "--repl-diskless-sync-delay", "0")}
	address := r.master.Addr
	if before != nil {
		before.target.Store(&r.master.Addr)
		address = before.addr
	}
	host, port, _ := net.SplitHostPort(address)
	r.replica = redistest.Start(t, "--replicaof", host+" "+port, "--repl-diskless-sync-delay", "0")
	replica := r.replica.Client()
	redistest.Await(t, "the replica follows", func() bool { return strings.Contains(info(replica, "replication"), "master_link_status:up") })
	r.sentinel = watch(t, address, lines...)
	admin := r.sentinel.Client()
	redistest.Await(t, "the sentinel knows the replica", func() bool {
		known, err := admin.Do(context.Background(), "SENTINEL", "replicas", "mymaster").Slice()
		return err == nil && len(known) == 1
	})
	return r
}

// watch starts a sentinel on a master, with further lines of configuration
// (without "sentinel", the name given as %s).
func watch(t testing.TB, master string, lines ...string) *redistest.Server {
	t.Helper()
	host, port, _ := net.SplitHostPort(master)
	conf := fmt.Sprintf("sentinel monitor mymaster %s %s 1\n", host, port)
	for _, line := range lines {
		conf += "sentinel " + fmt.Sprintf(line, "mymaster") + "\n"
	}
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	must.Do(t, os.WriteFile(file, []byte(conf), 0o600))
	sentinel := redistest.StartSentinel(t, file)
	admin := sentinel.Client()
	redistest.Await(t, "the sentinel knows the master", func() bool {
		return admin.Do(context.Background(), "SENTINEL", "get-master-addr-by-name", "mymaster").Err() == nil
	})
	return sentinel
}

// info is a section of what a server tells of itself; empty when it does not.
func info(server *redis.Client, section string) string {
	text, _ := server.Info(context.Background(), section).Result()
	return text
}
