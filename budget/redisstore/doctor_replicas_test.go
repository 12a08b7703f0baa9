package redisstore_test

import (
	"bytes"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// A master whose replicas do not keep up refuses writes from everybody. That is no
// missing permission.
func TestDiagnoseRefusedWrites(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	configure(t, server, "min-replicas-to-write", "1", "min-replicas-max-lag", "10")
	diagnose := func(url string) []driver.Finding {
		return openStore(t, url, redisstore.Options{}).Diagnose(t.Context())
	}
	list := diagnose(server.URL(0))
	expectFindings(t, "a master without its replica", list,
		wants{"permissions", driver.Warning, "the server refuses writes", "once it accepts them"},
		wants{"replicas", driver.Fault, server.Addr + " refuses writes: 0 of the 1 replicas that min-replicas-to-write asks for keep up within 10 s", "start the replica"})
	for _, f := range list {
		if strings.Contains(f.Says+f.Advice, "+") || f.Check == "writes" {
			t.Errorf("beside it: %+v", f)
		}
	}
	expectFindings(t, "a user that may not ask for INFO", diagnose(leastURL(t, server, "quotactl:*", "")),
		wants{"writes", driver.Fault, "fewer replicas keep up than min-replicas-to-write asks for", "start the replica"})

	host, port, _ := strings.Cut(server.Addr, ":")
	replica := redistest.Start(t, "--replicaof", host, port)
	expectFindings(t, "a replica", diagnose(replica.URL(0)), wants{"writes", driver.Fault, "READONLY", "name the master"})
	admin := server.Client()
	redistest.Await(t, "the replica keeps up", func() bool { return strings.Contains(info(admin, "replication"), "min_slaves_good_slaves:1") })
	expectFindings(t, "with its replica", diagnose(server.URL(0)),
		wants{"permissions", driver.OK, "may run every command", ""},
		wants{"replicas", driver.OK, server.Addr + " has 1 replica, and writes when 1", ""})
}

// The server takes writes again while the doctor is looking: no line says that it
// refuses them.
func TestDiagnoseRefusedWritesNoMore(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	configure(t, server, "min-replicas-to-write", "1")
	mended := sync.OnceFunc(func() { configure(t, server, "min-replicas-to-write", "0") })
	through, _ := before(t, server.Addr, func(sent []byte) {
		if bytes.Contains(sent, []byte("\r\ninfo\r\n")) {
			mended()
		}
	})
	for _, f := range openStore(t, "redis://"+through, redisstore.Options{}).Diagnose(t.Context()) {
		if f.Level == driver.Fault || f.Check == "permissions" && f.Level != driver.OK {
			t.Errorf("%+v", f)
		}
	}
}

// before forwards connections to a server, and shows what is sent there beforehand.
// Once it is ended it takes no more of them.
func before(t *testing.T, target string, show func(sent []byte)) (address string, end func()) {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	var links sync.WaitGroup
	t.Cleanup(links.Wait)
	t.Cleanup(func() { _ = listener.Close() })
	links.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			links.Go(func() {
				_, _ = io.Copy(client, server) // until either closes
				_ = client.Close()
			})
			links.Go(func() {
				defer func() { _, _ = client.Close(), server.Close() }()
				buffer := make([]byte, 1<<16)
				for {
					n, err := client.Read(buffer)
					if err != nil {
						return
					}
					show(buffer[:n])
					if _, err := server.Write(buffer[:n]); err != nil {
						return
					}
				}
			})
		}
	})
	return listener.Addr().String(), func() { _ = listener.Close() }
}

// The settings are not replicated, so that a replica is looked at for them too. A
// lone replica must not be asked for by its master: either's death would stop all.
func TestDiagnoseGuards(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	host, port, _ := strings.Cut(server.Addr, ":")
	admin := server.Client()
	store := openStore(t, server.URL(0), redisstore.Options{})
	first := redistest.Start(t, "--replicaof", host, port)
	redistest.Await(t, "a replica is there", func() bool { return strings.Contains(info(admin, "replication"), "connected_slaves:1") })
	expectFindings(t, "one replica", store.Diagnose(t.Context()),
		wants{"replicas", driver.Warning, server.Addr + " has 1 replica", "add a second replica first"},
		wants{"replicas", driver.Warning, "the replica " + first.Addr + ", once it is the master, writes when 0", "add a second replica first"})
	redistest.Start(t, "--replicaof", host, port)
	redistest.Await(t, "two replicas are there", func() bool { return strings.Contains(info(admin, "replication"), "connected_slaves:2") })
	configure(t, server, "min-replicas-to-write", "1")
	configure(t, first, "min-replicas-to-write", "1", "min-replicas-max-lag", "0")
	redistest.Await(t, "both keep up", func() bool { return strings.Contains(info(admin, "replication"), "min_slaves_good_slaves:2") })
	expectFindings(t, "a replica with no bound", store.Diagnose(t.Context()),
		wants{"replicas", driver.OK, server.Addr + " has 2 replicas", ""},
		wants{"replicas", driver.Warning, "the replica " + first.Addr + ", once it is the master, writes when 1", "CONFIG SET min-replicas-max-lag 10"},
		wants{"replicas", driver.Warning, "once it is the master, writes when 0 of its", "set min-replicas-to-write 1 and min-replicas-max-lag 10 (CONFIG SET min-replicas-to-write 1,"})
	configure(t, first, "min-replicas-max-lag", "10")
	expectFindings(t, "a replica that is set as its master", store.Diagnose(t.Context()),
		wants{"replicas", driver.OK, "the replica " + first.Addr + ", once it is the master, writes when 1", ""})
}
