package storetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/must"
)

// Metered calls metered and bare in turns from several goroutines, and reports the medians of the
// rounds: both rates, ratio, which is the metered one's divided by the bare one's, and what a call
// costs this process in processor time.
func Metered(b *testing.B, goroutines int, metered, bare func(context.Context) error) {
	var rates, used [2][]float64
	var ratios []float64
	for b.Loop() {
		for i, do := range []func(context.Context) error{bare, metered} {
			before, began := Processor(b), time.Now()
			rate := Rate(b, goroutines, 250*time.Millisecond, do)
			rates[i] = append(rates[i], rate)
			used[i] = append(used[i], float64((Processor(b)-before).Microseconds())/(rate*time.Since(began).Seconds()))
		}
		n := len(ratios)
		ratios = append(ratios, rates[1][n]/rates[0][n])
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(rates[1]), "metered/s")
	b.ReportMetric(median(rates[0]), "bare/s")
	b.ReportMetric(median(ratios), "ratio")
	b.ReportMetric(median(used[1]), "cpu-µs/metered")
	b.ReportMetric(median(used[0]), "cpu-µs/bare")
}

// Processor is the processor time that this process has used.
func Processor(b *testing.B) time.Duration {
	var used syscall.Rusage
	must.Do(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// Get reads one response of an address to its end.
func Get(client *http.Client, address string) func(context.Context) error {
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("get %s: %s", address, resp.Status)
		}
		return errors.Join(err, resp.Body.Close())
	}
}
