package redisstore_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// chargerChild carries the configuration of a process that charges.
const chargerChild = "QUOTACTL_REDISSTORE_CHARGER"

// A charger charges so often, until its standard input ends.
const chargerPause = 20 * time.Millisecond

// answered is one answer to a charger: when, in µs, and whether it was granted.
type answered struct {
	At      int64
	Granted bool
}

// chargeAndTell is the life of a charger: it prints each answer.
func chargeAndTell(config string) error {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		defer stop()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	b, err := open.Budget(ctx, config, name)
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }()
	tick := time.NewTicker(chargerPause)
	defer tick.Stop()
	out := json.NewEncoder(os.Stdout)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		_, err := b.Charge(ctx, budget.Call{Operation: "op"})
		if ctx.Err() != nil {
			return nil
		}
		if err := out.Encode(answered{time.Now().UnixMicro(), err == nil}); err != nil {
			return err
		}
	}
}

// chargers are six processes on two hosts: three share each state directory.
type chargers struct {
	b   *testing.B
	all sync.WaitGroup
	end []io.Closer

	mu      sync.Mutex // guards answers
	answers [6][]answered
}

func startChargers(b *testing.B, url string) *chargers {
	b.Helper()
	c := &chargers{b: b}
	b.Cleanup(c.stop)
	var configs []string
	for range 2 {
		dir := b.TempDir()
		configs = append(configs, filepath.Join(dir, "costs.toml"))
		text := fmt.Sprintf("state_dir = %q\n[store]\nurl = %q\n[upstream.up.costs]\nop = 1\n[upstream.up.limit.hour]\nquota = 1_000_000\nwindow = \"1h\"\n[upstream.up.credential.key1]\n", dir, url)
		must.Do(b, os.WriteFile(configs[len(configs)-1], []byte(text), 0o600))
	}
	for i := range c.answers {
		cmd := exec.CommandContext(b.Context(), os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), chargerChild+"="+configs[i%2])
		cmd.Stderr = io.Discard // each outage is logged
		in := must.Get(cmd.StdinPipe())(b)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		must.Do(b, err)
		c.end = append(c.end, in)
		c.all.Go(func() {
			for lines := bufio.NewScanner(out); lines.Scan(); {
				var a answered
				if json.Unmarshal(lines.Bytes(), &a) == nil {
					c.mu.Lock()
					c.answers[i] = append(c.answers[i], a)
					c.mu.Unlock()
				}
			}
			_ = cmd.Wait()
		})
	}
	c.goOn(time.Now())
	return c
}

// stop ends the processes; it may be called again.
func (c *chargers) stop() {
	for _, in := range c.end {
		_ = in.Close()
	}
	c.all.Wait()
}

// goOn waits until each process was granted some charges after an instant, the
// last ones all in turn.
func (c *chargers) goOn(after time.Time) {
	c.b.Helper()
	const some = 100
	redistest.Await(c.b, "every process is answered", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, list := range c.answers {
			if len(list) < some || list[len(list)-some].At < after.UnixMicro() ||
				slices.ContainsFunc(list[len(list)-some:], func(a answered) bool { return !a.Granted }) {
				return false
			}
		}
		return true
	})
}

// lastFailure is when the last charge after an instant failed, over all processes;
// the instant itself where none did.
func (c *chargers) lastFailure(after time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := after.UnixMicro()
	for _, list := range c.answers {
		for _, a := range list {
			if !a.Granted {
				last = max(last, a.At)
			}
		}
	}
	return time.UnixMicro(last)
}

// BenchmarkFailover measures how long six processes on two hosts are without an
// answer when a master is killed, hangs, or is cut off together with them: until
// the replica is promoted, and beyond that.
func BenchmarkFailover(b *testing.B) {
	for _, leaves := range []string{"killed", "hangs"} {
		leave := func(master *redistest.Server) {
			if leaves == "killed" {
				master.Kill()
				return
			}
			master.Signal(syscall.SIGSTOP)
		}
		b.Run("cluster/"+leaves, func(b *testing.B) {
			var promoted, dark []time.Duration
			for b.Loop() {
				n := startCluster(b, 3, nil)
				of := 0
				for ; n.slotOf(b, name) > slots*(of+1)/3-1; of++ {
				}
				replica := n.addReplica(b, of)
				admin := replica.Client()
				for _, node := range append(slices.Clone(n.admins), admin) {
					must.Do(b, node.ConfigSet(b.Context(), "cluster-node-timeout", "2000").Err())
				}
				p, d := failover(b, n.url(), admin, func() { leave(n.servers[of]) })
				promoted, dark = append(promoted, p), append(dark, d)
				_ = admin.Close()
			}
			report(b, promoted, dark)
		})
		b.Run("sentinel/"+leaves, func(b *testing.B) {
			var promoted, dark []time.Duration
			for b.Loop() {
				w := startWalled(b)
				admin := w.replica.Client()
				p, d := failover(b, w.url, admin, func() { leave(w.master) })
				promoted, dark = append(promoted, p), append(dark, d)
				_ = admin.Close()
			}
			report(b, promoted, dark)
		})
	}
	b.Run("sentinel/split", benchmarkSplit)
}

// failover has the processes charge while the master leaves: how long the
// promotion of its replica took, and how much longer charges failed.
func failover(b *testing.B, url string, replica *redis.Client, leave func()) (promoted, dark time.Duration) {
	b.Helper()
	c := startChargers(b, url)
	defer c.stop()
	left := time.Now()
	leave()
	redistest.Await(b, "the replica is promoted", func() bool { return strings.Contains(info(replica, "replication"), "role:master") })
	master := time.Now()
	c.goOn(master)
	c.stop()
	if !c.lastFailure(left).After(left) {
		b.Error("no process noticed that the master left")
	}
	return master.Sub(left), c.lastFailure(master).Sub(master)
}

func report(b *testing.B, promoted, dark []time.Duration) {
	b.ReportMetric(slices.Max(promoted).Seconds(), "promoted-s")
	b.ReportMetric(slices.Max(dark).Seconds(), "dark-beyond-s")
}

// benchmarkSplit cuts the master, one sentinel and the processes off from the
// replica and two sentinels. When these have promoted the replica, the network is
// whole again: measured is how long the old master still runs charges, and how
// long charges fail.
func benchmarkSplit(b *testing.B) {
	var dark, charged []time.Duration
	for b.Loop() {
		w := startWalled(b)
		c := startChargers(b, w.url)
		old, replica := w.master.Client(), w.replica.Client()
		w.cut()
		redistest.Await(b, "the replica is promoted", func() bool { return strings.Contains(info(replica, "replication"), "role:master") })
		redistest.Await(b, "the sentinels beyond the wall name it", func() bool {
			told, err := w.beyond.Do(context.Background(), "SENTINEL", "get-master-addr-by-name", "mymaster").StringSlice()
			return err == nil && len(told) == 2 && told[1] == w.promoted
		})
		w.heal()
		healed := time.Now()
		last, runs := healed, scriptRuns(old)
		redistest.Await(b, "the old master is a replica", func() bool {
			if now := scriptRuns(old); now > runs {
				last, runs = time.Now(), now
			}
			return strings.Contains(info(old, "replication"), "role:slave")
		})
		c.goOn(healed)
		c.stop()
		charged, dark = append(charged, last.Sub(healed)), append(dark, c.lastFailure(healed).Sub(healed))
		_, _ = old.Close(), replica.Close()
	}
	b.ReportMetric(slices.Max(charged).Seconds(), "old-master-charged-s")
	b.ReportMetric(slices.Max(dark).Seconds(), "dark-s")
}

// walled are a master with a sentinel on one side of a wall and a replica with two
// on the other. Clients are on the master's side.
type walled struct {
	*wall
	master, replica *redistest.Server
	url             string
	beyond          *redis.Client // of a sentinel on the replica's side
	promoted        string        // the replica's port as the sentinels know it
}

// farSource is where the far side connects from.
const farSource = "127.0.0.2"

func startWalled(b *testing.B) *walled {
	b.Helper()
	l, err := net.Listen("tcp", farSource+":0")
	if err != nil {
		b.Skip("the machine has only one loopback address: ", err)
	}
	_ = l.Close()
	w := &walled{wall: newWall(farSource)}
	w.master = redistest.Start(b, "--repl-diskless-sync-delay", "0")
	master := w.gate(b, w.master.Addr, false)
	host, port, _ := strings.Cut(master, ":")
	announced := redistest.FreeAddress(b)
	_, announcedPort, _ := strings.Cut(announced, ":")
	w.replica = redistest.Start(b, "--replicaof", host+" "+port, "--repl-diskless-sync-delay", "0", "--bind-source-addr", farSource,
		"--replica-announce-ip", host, "--replica-announce-port", announcedPort)
	w.gateAt(b, announced, w.replica.Addr, true)
	replica := w.replica.Client()
	redistest.Await(b, "the replica follows", func() bool { return strings.Contains(info(replica, "replication"), "master_link_status:up") })
	var sentinels []string
	for i := range 3 {
		address := redistest.FreeAddress(b)
		_, sentinelPort, _ := strings.Cut(address, ":")
		conf := fmt.Sprintf("sentinel monitor mymaster %s %s 2\nsentinel down-after-milliseconds mymaster 2000\nsentinel failover-timeout mymaster 10000\nsentinel announce-ip 127.0.0.1\nsentinel announce-port %s\n", host, port, sentinelPort)
		if i > 0 {
			conf += "bind-source-addr " + farSource + "\n"
		}
		file := filepath.Join(b.TempDir(), "sentinel.conf")
		must.Do(b, os.WriteFile(file, []byte(conf), 0o600))
		sentinel := redistest.StartSentinel(b, file)
		w.gateAt(b, address, sentinel.Addr, i > 0)
		sentinels = append(sentinels, address)
		admin := sentinel.Client()
		b.Cleanup(func() { _ = admin.Close() })
		w.beyond, w.promoted = admin, announcedPort // the last one
		defer redistest.Await(b, "the sentinels know each other", func() bool {
			known, err := admin.Do(context.Background(), "SENTINEL", "sentinels", "mymaster").Slice()
			replicas, replicasErr := admin.Do(context.Background(), "SENTINEL", "replicas", "mymaster").Slice()
			return err == nil && replicasErr == nil && len(known) == 2 && len(replicas) == 1
		})
	}
	w.url = "redis+sentinel://" + strings.Join(sentinels, ",") + "/mymaster"
	return w
}
