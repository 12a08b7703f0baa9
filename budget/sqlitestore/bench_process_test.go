package sqlitestore_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/sqlitestore"
)

// benchChild carries the orders of a process that a benchmark started.
const benchChild = "QUOTACTL_SQLITE_BENCH"

type benchOrders struct {
	Path       string
	Goroutines int
	Span       time.Duration
}

// benchSpec is a budget that no benchmark exhausts.
func benchSpec() budget.Spec {
	return budget.Spec{
		Name: "up/bench", Timeout: time.Minute, Costs: map[string]budget.Cost{"op": {Units: 1}},
		Limits: []budget.Limit{{Name: "daily", Limit: budget.MaxUnits, Counts: budget.CountUnits, Window: budget.RollingWindow(24 * time.Hour)}},
	}
}

// chargeForBench is the life of a benchmark's child: it charges for the span and
// prints how long each charge took, in µs.
func chargeForBench(text string) error {
	var o benchOrders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	store, err := sqlitestore.Open(context.Background(), o.Path, sqlitestore.Options{Timeout: time.Minute})
	if err != nil {
		return err
	}
	b, err := budget.New(store, benchSpec(), budget.WithClosers(store))
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	took := make([][]int64, o.Goroutines)
	failed := make(chan error, o.Goroutines)
	end := time.Now().Add(o.Span)
	for g := range o.Goroutines {
		all.Go(func() {
			for time.Now().Before(end) {
				began := time.Now()
				if _, err := b.Charge(context.Background(), budget.Call{Operation: "op"}); err != nil {
					failed <- err
					return
				}
				took[g] = append(took[g], time.Since(began).Microseconds())
			}
		})
	}
	all.Wait()
	select {
	case err := <-failed:
		return err
	default:
	}
	if err := json.NewEncoder(os.Stdout).Encode(slices.Concat(took...)); err != nil {
		return err
	}
	return b.Close()
}

// BenchmarkProcesses charges from one and from four processes that share a file,
// each acknowledged only when it is on the disk.
func BenchmarkProcesses(b *testing.B) {
	for _, processes := range []int{1, 4} {
		for _, goroutines := range []int{1, 16} {
			b.Run(fmt.Sprintf("processes=%d/goroutines=%d", processes, goroutines), func(b *testing.B) {
				var took []int64
				rounds := 0
				const span = time.Second
				for b.Loop() {
					rounds++
					took = append(took, benchProcesses(b, processes, benchOrders{filepath.Join(b.TempDir(), fmt.Sprint(rounds, ".db")), goroutines, span})...)
				}
				slices.Sort(took)
				b.ReportMetric(float64(len(took))/(float64(rounds)*span.Seconds()), "charges/s")
				b.ReportMetric(float64(took[len(took)/2])/1000, "p50-ms")
				b.ReportMetric(float64(took[len(took)*99/100])/1000, "p99-ms")
				b.ReportMetric(float64(took[len(took)-1])/1000, "max-ms")
			})
		}
	}
}

func benchProcesses(b *testing.B, processes int, o benchOrders) []int64 {
	store, err := sqlitestore.Open(b.Context(), o.Path, sqlitestore.Options{}) // the file is made before
	if err == nil {
		err = store.Close()
	}
	orders, jsonErr := json.Marshal(o)
	if err != nil || jsonErr != nil {
		b.Fatal(err, jsonErr)
	}
	answers := make([][]int64, processes)
	var all sync.WaitGroup
	for i := range processes {
		all.Go(func() {
			child := exec.CommandContext(b.Context(), os.Args[0])
			child.Env = append(os.Environ(), benchChild+"="+string(orders))
			child.Stderr = os.Stderr
			out, err := child.Output()
			if err == nil {
				err = json.Unmarshal(out, &answers[i])
			}
			if err != nil {
				b.Error(err)
			}
		})
	}
	all.Wait()
	return slices.Concat(answers...)
}

// BenchmarkMillion charges beside a million charges in the window and beside a
// hundred, turn by turn, and looks at the former.
func BenchmarkMillion(b *testing.B) {
	opened := map[int]*budget.Budget{}
	var looked time.Duration
	for _, n := range []int{100, 1_000_000} {
		store, err := sqlitestore.Open(b.Context(), filepath.Join(b.TempDir(), fmt.Sprint(n, ".db")), sqlitestore.Options{Timeout: time.Minute})
		if err != nil {
			b.Fatal(err)
		}
		spec := benchSpec()
		for i := 0; i < n; {
			batch := budget.Batch{Budget: spec.Name, Now: time.Now().UnixMicro(), Limits: spec.Limits}
			for ; i < n && len(batch.Items) < budget.MaxBatch; i++ {
				batch.Items = append(batch.Items, budget.Item{ID: fmt.Sprint("fill", i), Operation: "op", Units: 1})
			}
			if _, err := store.Decide(b.Context(), batch); err != nil {
				b.Fatal(err)
			}
		}
		if opened[n], err = budget.New(store, spec, budget.WithClosers(store)); err != nil {
			b.Fatal(err)
		}
		defer func() { _ = opened[n].Close() }()
	}
	sums, rounds := map[int]float64{}, 0
	for b.Loop() {
		rounds++
		for n, bud := range opened {
			charges, end := 0, time.Now().Add(100*time.Millisecond)
			for ; time.Now().Before(end); charges++ {
				if _, err := bud.Charge(b.Context(), budget.Call{Operation: "op"}); err != nil {
					b.Fatal(err)
				}
			}
			sums[n] += float64(charges) * 10
		}
		began := time.Now()
		if _, err := opened[1_000_000].Status(b.Context()); err != nil {
			b.Fatal(err)
		}
		looked = max(looked, time.Since(began))
	}
	b.ReportMetric(sums[1_000_000]/float64(rounds), "charges/s")
	b.ReportMetric(sums[100]/sums[1_000_000], "times-slower")
	b.ReportMetric(float64(looked.Microseconds())/1000, "status-ms")
}
