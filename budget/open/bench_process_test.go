package open_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// benchChild carries the orders of a process that a benchmark started.
const benchChild = "QUOTACTL_OPEN_BENCH"

func TestMain(m *testing.M) {
	if orders, isChild := os.LookupEnv(benchChild); isChild {
		if err := chargeForBench(orders); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// benchOrders are for a process that charges. All processes begin at Start, and end
// a Span later.
type benchOrders struct {
	Config string
	Start  time.Time
	Span   time.Duration
	Every  time.Duration // between two charges of a process, all at the same instants; 0: no pause
	Once   bool          // charge once and end
}

// benchConfig is a budget that no benchmark exhausts, on a file.
const benchConfig = `
[store]
url = "sqlite:%s"
[upstream.up]
costs = { op = 1 }
[upstream.up.limit.daily]
quota = 1_000_000_000
window = "24h"
[upstream.up.credential.key]
`

// chargeForBench charges for the span, and prints what came of it.
func chargeForBench(text string) error {
	var o benchOrders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	b, err := open.Budget(context.Background(), o.Config, "up/key")
	if err != nil {
		return err
	}
	<-time.After(time.Until(o.Start))
	var answer benchAnswer
	end := o.Start.Add(o.Span)
	for next := o.Start; time.Now().Before(end); next = next.Add(o.Every) {
		if o.Every > 0 {
			<-time.After(time.Until(next))
		}
		began := time.Now()
		_, err := b.Charge(context.Background(), budget.Call{Operation: "op"})
		answer.note(time.Since(began), err)
		if o.Once {
			break
		}
	}
	if err := b.Close(); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(answer)
}

// benchAnswer is what came of charges: how long those took that were granted, in
// µs, and how many were refused since the store was not to be had, for sure or not.
type benchAnswer struct {
	Took             []int64
	Refused, Unknown int
}

func (a *benchAnswer) note(took time.Duration, err error) {
	var refused *budget.RefusedError
	switch {
	case err == nil:
		a.Took = append(a.Took, took.Microseconds())
	case errors.As(err, &refused) && refused.NotCharged:
		a.Refused++
	default:
		a.Unknown++
	}
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

// BenchmarkProcesses charges from processes that share a file and a host, each
// charge acknowledged only when it is on the disk: as fast as they can, and each
// once a second, all at the same instants. One-shot processes open, charge once and
// end, each lane one after the other; what they take is the whole process.
func BenchmarkProcesses(b *testing.B) {
	for _, mode := range []struct {
		name      string
		processes []int
		orders    benchOrders
	}{
		{"unpaced", []int{1, 4, 10, 30, 100}, benchOrders{Span: 3 * time.Second}},
		{"once-a-second", []int{4, 10, 30, 60, 100}, benchOrders{Span: 5 * time.Second, Every: time.Second}},
		{"one-shot", []int{1, 4, 10, 30, 100}, benchOrders{Span: 5 * time.Second, Once: true}},
	} {
		for _, n := range mode.processes {
			b.Run(fmt.Sprintf("%s/processes=%d", mode.name, n), func(b *testing.B) {
				var sum benchAnswer
				rounds := 0
				for b.Loop() {
					rounds++
					sum.add(benchProcesses(b, n, mode.orders))
				}
				sum.report(b, time.Duration(rounds)*mode.orders.Span)
			})
		}
	}
}

func benchProcesses(b *testing.B, processes int, o benchOrders) (sum benchAnswer) {
	dir := b.TempDir()
	o.Config = filepath.Join(dir, "costs.toml")
	must.Do(b, os.WriteFile(o.Config, fmt.Appendf(nil, benchConfig, filepath.Join(dir, "q.db")), 0o600))
	made, err := open.Budget(b.Context(), o.Config, "up/key") // the file is made before
	if err == nil {
		err = made.Close()
	}
	must.Do(b, err)
	o.Start = time.Now()
	if !o.Once {
		o.Start = o.Start.Add(time.Second + time.Duration(processes)*40*time.Millisecond) // all are there by then
	}
	answers := make([]benchAnswer, processes)
	var all sync.WaitGroup
	for i := range processes {
		all.Go(func() {
			if !o.Once {
				answers[i] = benchProcess(b, o)
				return
			}
			for end := o.Start.Add(o.Span); time.Now().Before(end); {
				began := time.Now()
				one := benchProcess(b, o)
				if len(one.Took) > 0 {
					one.Took[0] = time.Since(began).Microseconds()
				}
				answers[i].add(one)
			}
		})
	}
	all.Wait()
	for _, a := range answers {
		sum.add(a)
	}
	return sum
}

// benchProcess is what came of one process. One that could not open the store counts
// as refused.
func benchProcess(b *testing.B, o benchOrders) (answer benchAnswer) {
	orders := must.Get(json.Marshal(o))(b)
	child := exec.CommandContext(b.Context(), os.Args[0])
	child.Env = append(os.Environ(), benchChild+"="+string(orders))
	child.Stderr = os.Stderr
	out, err := child.Output()
	if err != nil {
		return benchAnswer{Refused: 1}
	}
	check.NoError(b, json.Unmarshal(out, &answer))
	return answer
}
