package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
	"github.com/quotactl/quotactl/internal/storetest"
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

// BenchmarkGateway compares, turn by turn, requests that are metered with requests to a path of
// the same host that nobody owns, which is what a bare proxy with the same CA does. Each
// goroutine has a connection of its own, which is kept. ratio is the rate of the metered ones
// divided by that of the bare ones; the processor time is that of this process, which plays
// program, gateway and upstream.
func BenchmarkGateway(b *testing.B) {
	server := redistest.Start(b)
	for _, store := range []struct{ name, url string }{{"Redis", server.URL(0)}, {"SQLite", "sqlite:quotactl.db"}} {
		for _, n := range []int{1, 64, 256} {
			b.Run(fmt.Sprintf("%s/goroutines=%d", store.name, n), func(b *testing.B) { benchGateway(b, store.url, n) })
		}
	}
}

func benchGateway(b *testing.B, store string, n int) {
	w := newWorld(b, fmt.Sprintf(benchWorld, store), func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	client := w.client(false)
	client.Transport.(*http.Transport).MaxIdleConnsPerHost = n
	var rates, used [2][]float64
	var ratios []float64
	turn := func(address string) (rate, cpu float64) {
		before, began := cpuTime(b), time.Now()
		rate = storetest.Rate(b, n, 250*time.Millisecond, func(ctx context.Context) error { return ask(ctx, client, address) })
		return rate, float64((cpuTime(b) - before).Microseconds()) / (rate * time.Since(began).Seconds())
	}
	addresses := []string{"https://api.example.com/bare", "https://api.example.com/metered/x"}
	for _, address := range addresses { // the connections are made
		turn(address)
	}
	for b.Loop() {
		for i, address := range addresses {
			rate, cpu := turn(address)
			rates[i], used[i] = append(rates[i], rate), append(used[i], cpu)
		}
		ratios = append(ratios, rates[1][len(ratios)]/rates[0][len(ratios)])
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(middle(rates[1]), "metered/s")
	b.ReportMetric(middle(rates[0]), "bare/s")
	b.ReportMetric(middle(ratios), "ratio")
	b.ReportMetric(middle(used[1]), "cpu-µs/metered")
	b.ReportMetric(middle(used[0]), "cpu-µs/bare")
}

// middle is the median.
func middle(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// ask reads one answer to its end.
func ask(ctx context.Context, client *http.Client, address string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(resp.Body)
	if err == nil && string(text) != "ok" {
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	return errors.Join(err, resp.Body.Close())
}

func cpuTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	must.Do(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
