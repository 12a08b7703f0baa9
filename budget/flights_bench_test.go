package budget_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/outage"
	"github.com/quotactl/quotactl/internal/must"
)

// grantingStore grants all that it is asked, after wait. It counts the batches.
type grantingStore struct {
	driver.Store
	wait    func(ctx context.Context) error
	batches *atomic.Int64
	charges *atomic.Int64
}

func (s grantingStore) Decide(ctx context.Context, batch driver.Batch) (driver.Decisions, error) {
	if err := s.wait(ctx); err != nil {
		return driver.Decisions{}, err
	}
	s.batches.Add(1)
	decided := driver.Decisions{Now: batch.Now, Seen: batch.Now, Items: make([]driver.Decision, len(batch.Items)), Used: make([]int64, len(batch.Limits)), AtWork: 1}
	decided.Mark = driver.Mark{Ledger: "ledger", Changes: s.charges.Add(int64(len(batch.Items))), ID: batch.Items[len(batch.Items)-1].ID, At: batch.Now, Seen: batch.Now}
	for i := range batch.Items {
		decided.Items[i] = driver.Decision{Result: driver.Granted, Units: batch.Items[i].Units, At: batch.Now, Limit: 0, Remaining: 1}
	}
	return decided, nil
}

// peerVariable names the socket that this process answers on, if a benchmark started it
// as a peer.
const peerVariable = "QUOTACTL_BUDGET_PEER"

// peerWork is how long a peer works on an answer.
const peerWork = 300 * time.Microsecond

// TestMain runs the tests, or a peer in a process that startPeer started.
func TestMain(m *testing.M) {
	if path := os.Getenv(peerVariable); path != "" {
		if err := runPeer(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// peerConns is how many connections a peer has: one for each flight under way.
const peerConns = 2

// runPeer works for peerWork on each byte that it receives, one at a time as a store's server
// does, and sends it back, until the benchmark has ended.
func runPeer(path string) error {
	var work sync.Mutex
	var all sync.WaitGroup
	for range peerConns {
		var dialer net.Dialer
		conn, err := dialer.DialContext(context.Background(), "unix", path)
		if err != nil {
			return err
		}
		all.Go(func() {
			one := make([]byte, 1)
			for {
				if _, err := conn.Read(one); err != nil {
					return
				}
				work.Lock()
				for began := time.Now(); time.Since(began) < peerWork; {
				}
				work.Unlock()
				if _, err := conn.Write(one); err != nil {
					return
				}
			}
		})
	}
	all.Wait()
	return nil
}

// startPeer starts a process that takes peerWork for each answer, as a store's server does
// for a script. Its work is not in the usage of the process that waits for it.
func startPeer(b *testing.B) (wait func(context.Context) error) {
	path := filepath.Join(b.TempDir(), "peer")
	listener := must.Get(new(net.ListenConfig).Listen(b.Context(), "unix", path))(b)
	b.Cleanup(func() { _ = listener.Close() })
	peer := exec.CommandContext(b.Context(), os.Args[0])
	peer.Env = append(os.Environ(), peerVariable+"="+path)
	must.Do(b, peer.Start())
	conns := make(chan net.Conn, peerConns)
	b.Cleanup(func() {
		for range peerConns {
			_ = (<-conns).Close()
		}
		_ = peer.Wait()
	})
	for range peerConns {
		conns <- must.Get(listener.Accept())(b)
	}
	return func(context.Context) error {
		conn := <-conns
		defer func() { conns <- conn }()
		one := []byte{1}
		if _, err := conn.Write(one); err != nil {
			return err
		}
		_, err := conn.Read(one)
		return err
	}
}

// processor is the processor time that this process has used.
func processor(b *testing.B) time.Duration {
	var used syscall.Rusage
	must.Do(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// perFlight is how many allocations a flight may take besides those of its charges.
var perFlight = map[string]float64{"at-once": 20, "300us": 20, "hosted": 40}

// BenchmarkFlights charges from up to 256 goroutines at once, on a store that answers at
// once and on one that another process takes 0.3 ms for. It tells the size of a flight and
// what a charge costs this process, and fails if there are more allocations than one a
// charge, for its id, and a few a flight and a goroutine. The store's own are in it.
func BenchmarkFlights(b *testing.B) {
	for _, store := range []string{"at-once", "300us", "hosted"} {
		for _, goroutines := range []int{1, 16, 64, 256} {
			b.Run(fmt.Sprintf("%s/goroutines=%d", store, goroutines), func(b *testing.B) {
				wait := func(context.Context) error { return nil }
				if store == "300us" {
					wait = startPeer(b)
				}
				var batches, charges atomic.Int64
				var asked driver.Store = grantingStore{wait: wait, batches: &batches, charges: &charges}
				if store == "hosted" {
					asked = outage.New(asked, outage.Options{Dir: b.TempDir(), Timeout: time.Minute})
				}
				opened := must.Get(budget.New(asked, budget.Spec{
					Name: "up/bench", Costs: map[string]budget.Cost{"op": {Units: 1}}, Timeout: time.Minute,
					Limits: []limit.Limit{{Name: "hourly", Limit: limit.MaxUnits, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)}},
				}))(b)
				call := budget.Call{Operation: "op", Labels: budget.Labels{Job: "trending", Region: "US", Run: "20260610T120000Z"}}
				var all sync.WaitGroup
				var left atomic.Int64
				left.Store(int64(b.N))
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				used := processor(b)
				b.ResetTimer()
				for range goroutines {
					all.Go(func() {
						for left.Add(-1) >= 0 {
							if _, err := opened.Charge(b.Context(), call); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				all.Wait()
				b.StopTimer()
				used = processor(b) - used
				runtime.ReadMemStats(&after)
				n := float64(b.N)
				if most := 1.05*n + perFlight[store]*float64(batches.Load()) + 10*float64(goroutines); n >= 1000 && float64(after.Mallocs-before.Mallocs) > most {
					b.Errorf("%d allocations for %d charges in %d flights: use at most %.0f", after.Mallocs-before.Mallocs, b.N, batches.Load(), most)
				}
				b.ReportMetric(n/b.Elapsed().Seconds(), "charges/s")
				b.ReportMetric(float64(used.Nanoseconds())/1000/n, "cpu-µs/charge")
				b.ReportMetric(n/float64(batches.Load()), "charges/flight")
				b.ReportMetric(float64(after.Mallocs-before.Mallocs)/n, "allocs/charge")
				b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/n, "bytes/charge")
			})
		}
	}
}
