package gateway

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// benchWorld meters what is below /metered, and passes on all else.
const benchWorld = `
[store]
url = "%s"
[upstream.any]
base_url = "https://api.example.com/metered"
unknown_operation = 1
[upstream.any.limit.day]
quota = 1_000_000_000
window = "24h"
[upstream.any.credential.main]
`

// BenchmarkGateway sends requests over kept connections, one each, in turns to a path that is
// metered and to one that is only opened, which is what a bare proxy with the same CA does.
// metered/bare is the ratio of their rates; cpu-µs/call and bare-cpu-µs/call are what one
// call costs this process, which plays program, gateway and upstream.
func BenchmarkGateway(b *testing.B) {
	server := redistest.Start(b)
	for _, store := range []struct{ name, url string }{{"sqlite", "sqlite:quotactl.db"}, {"redis", server.URL(0)}} {
		for _, n := range []int{1, 64, 256} {
			b.Run(fmt.Sprintf("%s/connections=%d", store.name, n), func(b *testing.B) {
				w := newWorld(b, fmt.Sprintf(benchWorld, store.url), func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
				client := w.client(false)
				client.Transport.(*http.Transport).MaxIdleConnsPerHost = n
				var bare, metered [2]time.Duration // the time and the CPU time of the same number of calls
				calls, per := 0, 50+20*n
				for range 3 { // the connections are made
					batch(b, client, "https://api.example.com/bare", n, 10*n)
					batch(b, client, "https://api.example.com/metered/x", n, 10*n)
				}
				for b.Loop() {
					add(&bare, batch(b, client, "https://api.example.com/bare", n, per))
					add(&metered, batch(b, client, "https://api.example.com/metered/x", n, per))
					calls += per
				}
				b.ReportMetric(float64(bare[0])/float64(metered[0]), "metered/bare")
				b.ReportMetric(float64(metered[1].Microseconds())/float64(calls), "cpu-µs/call")
				b.ReportMetric(float64(bare[1].Microseconds())/float64(calls), "bare-cpu-µs/call")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

func add(sum *[2]time.Duration, one [2]time.Duration) {
	sum[0] += one[0]
	sum[1] += one[1]
}

// batch sends calls from n goroutines, and returns how long that took and its CPU time.
func batch(b *testing.B, client *http.Client, address string, n, calls int) [2]time.Duration {
	runtime.GC()
	began, cpu := time.Now(), cpuTime(b)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			for range (calls + n - 1 - i) / n {
				resp, err := client.Get(address)
				if err != nil {
					b.Error(err)
					return
				}
				text, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if !strings.HasPrefix(string(text), "ok") {
					b.Error(resp.Status, string(text))
					return
				}
			}
		})
	}
	all.Wait()
	return [2]time.Duration{time.Since(began), cpuTime(b) - cpu}
}

func cpuTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	must.Do(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
