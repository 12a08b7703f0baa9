package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Setup is some servers behind proxies.
type Setup struct {
	URL     string
	Proxies []*Proxy
}

// Single is one server.
func Single(t testing.TB, seed uint64) Setup {
	p := StartProxy(t, Start(t).Addr, seed)
	return Setup{"redis://" + p.Addr, []*Proxy{p}}
}

// Watched is a master that a sentinel tells of.
func Watched(t testing.TB, seed uint64) Setup {
	p := StartProxy(t, Start(t).Addr, seed)
	return Setup{"redis+sentinel://" + Watch(t, p.Addr).Addr + "/mymaster", []*Proxy{p}}
}

// Watch starts a sentinel for a master.
func Watch(t testing.TB, master string) *Server {
	t.Helper()
	host, port, _ := net.SplitHostPort(master)
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	conf := fmt.Sprintf("sentinel monitor mymaster %s %s 1\nsentinel down-after-milliseconds mymaster 500\nsentinel failover-timeout mymaster 3000\n", host, port)
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	watcher := StartSentinel(t, file)
	admin := watcher.Client()
	defer func() { _ = admin.Close() }()
	Await(t, "the sentinel knows the master", func() bool {
		return admin.Do(context.Background(), "SENTINEL", "get-master-addr-by-name", "mymaster").Err() == nil
	})
	return watcher
}

// StartCluster starts a cluster of three masters, each behind a proxy that it announces.
func StartCluster(t testing.TB, seed uint64) (Setup, []*Server) {
	t.Helper()
	var s Setup
	var nodes []*Server
	var addresses []string
	for i := range 3 {
		node := Start(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
		p := StartProxy(t, node.Addr, seed+uint64(i))
		_, real, _ := net.SplitHostPort(node.Addr)
		_, shown, _ := net.SplitHostPort(p.Addr)
		bus := atoi(t, real) + 10_000
		admin := node.Client()
		for key, value := range map[string]string{"cluster-announce-ip": "127.0.0.1", "cluster-announce-port": shown, "cluster-announce-bus-port": fmt.Sprint(bus)} {
			if err := admin.ConfigSet(t.Context(), key, value).Err(); err != nil {
				t.Fatal(err)
			}
		}
		if err := admin.ClusterAddSlotsRange(t.Context(), i*5461, min(16383, (i+1)*5461-1)).Err(); err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			if err := admin.ClusterAddSlotsRange(t.Context(), 16383, 16383).Err(); err != nil {
				t.Fatal(err)
			}
		}
		if err := admin.Do(t.Context(), "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			t.Fatal(err)
		}
		_ = admin.Close()
		nodes, s.Proxies, addresses = append(nodes, node), append(s.Proxies, p), append(addresses, p.Addr)
	}
	for _, node := range nodes[1:] {
		admin := node.Client()
		host, port, _ := net.SplitHostPort(nodes[0].Addr)
		if err := admin.Do(t.Context(), "CLUSTER", "MEET", host, port, atoi(t, port)+10_000).Err(); err != nil {
			t.Fatal(err)
		}
		_ = admin.Close()
	}
	for _, node := range nodes {
		admin := node.Client()
		Await(t, "the cluster is up", func() bool {
			info, err := admin.ClusterInfo(t.Context()).Result()
			nodes, nodesErr := admin.ClusterNodes(t.Context()).Result()
			return err == nil && nodesErr == nil && strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:3") &&
				strings.Contains(info, "cluster_size:3") && !strings.Contains(nodes, "handshake")
		})
		_ = admin.Close()
	}
	s.URL = "redis+cluster://" + strings.Join(addresses, ",")
	return s, nodes
}

func atoi(t testing.TB, text string) (n int) {
	t.Helper()
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatal(err)
	}
	return n
}
