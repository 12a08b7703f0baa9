package sqlitestore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
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
	Start      time.Time // when all begin
	Span       time.Duration
	Every      time.Duration // between the beginnings of two charges; 0: without a pause
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
	store, err := sqlitestore.Open(context.Background(), o.Path, sqlitestore.Options{})
	if err != nil {
		return err
	}
	spec := benchSpec()
	spec.Timeout = sqlitestore.DefaultTimeout
	b, err := budget.New(store, spec, budget.WithClosers(store))
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	answers := make([]benchAnswer, o.Goroutines)
	<-time.After(time.Until(o.Start))
	end := o.Start.Add(o.Span)
	for g := range o.Goroutines {
		all.Go(func() {
			a := &answers[g]
			next := o.Start.Add(time.Duration(rand.Int64N(int64(o.Every + 1))))
			for time.Now().Before(end) {
				if o.Every > 0 {
					<-time.After(time.Until(next))
					next = next.Add(o.Every)
				}
				began := time.Now()
				_, err := b.Charge(context.Background(), budget.Call{Operation: "op"})
				var refused *budget.RefusedError
				switch {
				case err == nil:
					a.Took = append(a.Took, time.Since(began).Microseconds())
				case errors.As(err, &refused) && refused.NotCharged:
					a.Refused++
				default:
					a.Unknown++
				}
			}
		})
	}
	all.Wait()
	var sum benchAnswer
	for _, a := range answers {
		sum.add(a)
	}
	if err := json.NewEncoder(os.Stdout).Encode(sum); err != nil {
		return err
	}
	return b.Close()
}

// benchAnswer is what came of the charges: how long those took that were granted, in
// µs, and how many were refused since the store was not to be had, for sure or not.
type benchAnswer struct {
	Took             []int64
	Refused, Unknown int
}

func (a *benchAnswer) add(b benchAnswer) {
	a.Took = append(a.Took, b.Took...)
	a.Refused += b.Refused
	a.Unknown += b.Unknown
}

// report reports a benchmark's metrics; over is how long the charges took in all.
func (a *benchAnswer) report(b *testing.B, over time.Duration) {
	slices.Sort(a.Took)
	if len(a.Took) == 0 {
		b.Fatal("nothing was granted")
	}
	b.ReportMetric(float64(len(a.Took))/over.Seconds(), "charges/s")
	b.ReportMetric(float64(a.Took[len(a.Took)/2])/1000, "p50-ms")
	b.ReportMetric(float64(a.Took[len(a.Took)*99/100])/1000, "p99-ms")
	b.ReportMetric(float64(a.Took[len(a.Took)-1])/1000, "max-ms")
	b.ReportMetric(float64(a.Refused), "refused")
	b.ReportMetric(float64(a.Unknown), "unknown")
}

// BenchmarkProcesses charges from processes that share a file, each acknowledged
// only when it is on the disk: as fast as they can, and each once a second.
func BenchmarkProcesses(b *testing.B) {
	for _, c := range []struct {
		processes, goroutines int
		every                 time.Duration
	}{
		{1, 1, 0}, {1, 16, 0}, {4, 1, 0}, {4, 16, 0}, {10, 1, 0}, {30, 1, 0}, {100, 1, 0},
		{4, 1, time.Second}, {10, 1, time.Second}, {30, 1, time.Second}, {100, 1, time.Second},
	} {
		name := fmt.Sprintf("processes=%d/goroutines=%d", c.processes, c.goroutines)
		if c.every > 0 {
			name += "/once-a-second"
		}
		b.Run(name, func(b *testing.B) {
			var sum benchAnswer
			rounds := 0
			span := 2*time.Second + 2*c.every
			for b.Loop() {
				rounds++
				sum.add(benchProcesses(b, c.processes, benchOrders{
					Path: filepath.Join(b.TempDir(), fmt.Sprint(rounds, ".db")), Goroutines: c.goroutines, Span: span, Every: c.every,
				}))
			}
			sum.report(b, time.Duration(rounds)*span)
		})
	}
}

func benchProcesses(b *testing.B, processes int, o benchOrders) (sum benchAnswer) {
	store, err := sqlitestore.Open(b.Context(), o.Path, sqlitestore.Options{}) // the file is made before
	if err == nil {
		err = store.Close()
	}
	o.Start = time.Now().Add(time.Second + time.Duration(processes)*40*time.Millisecond) // all are there by then
	orders, jsonErr := json.Marshal(o)
	if err != nil || jsonErr != nil {
		b.Fatal(err, jsonErr)
	}
	answers := make([]benchAnswer, processes)
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
	for _, a := range answers {
		sum.add(a)
	}
	return sum
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
