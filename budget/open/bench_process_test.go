package open_test

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
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
	Each   int           // how many goroutines of a process charge at a time; 0: one
}

// benchConfig is a budget that no benchmark exhausts, on a store.
const benchConfig = `
[store]
url = "%s"
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
	answers := make([]benchAnswer, max(1, o.Each))
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() { answers[i] = o.charge(b) })
	}
	all.Wait()
	if err := b.Close(); err != nil {
		return err
	}
	var answer benchAnswer
	for _, a := range answers {
		answer.add(a)
	}
	return json.NewEncoder(os.Stdout).Encode(answer)
}

// charge charges from one goroutine.
func (o benchOrders) charge(b *budget.Budget) (answer benchAnswer) {
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
	return answer
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
// charge acknowledged only when it is on the disk: as fast as they can, from one
// goroutine or 16 each, and each once a second, all at the same instants. One-shot
// processes open, charge once and end, each lane one after the other; what they take is
// the whole process.
//
// fsyncs/group is how often the disk was synced for each transaction, the write-ahead log's
// upkeep included: by one more round, under strace where it is installed.
func BenchmarkProcesses(b *testing.B) {
	for _, mode := range []struct {
		name      string
		processes []int
		orders    benchOrders
	}{
		{"unpaced", []int{1, 4, 16, 100}, benchOrders{Span: 3 * time.Second}},
		{"unpaced-16-each", []int{1, 4, 16}, benchOrders{Span: 3 * time.Second, Each: 16}},
		{"once-a-second", []int{4, 16, 100}, benchOrders{Span: 5 * time.Second, Every: time.Second}},
		{"one-shot", []int{1, 4, 16, 100}, benchOrders{Span: 5 * time.Second, Once: true}},
	} {
		for _, n := range mode.processes {
			b.Run(fmt.Sprintf("%s/processes=%d", mode.name, n), func(b *testing.B) {
				var sum benchAnswer
				rounds := 0
				for b.Loop() {
					rounds++
					one, _ := benchProcesses(b, n, mode.orders, nil, "")
					sum.add(one)
				}
				sum.report(b, time.Duration(rounds)*mode.orders.Span)
				b.ReportMetric(0, "ns/op")
				if !mode.orders.Once {
					reportSyncs(b, n, mode.orders)
				}
			})
		}
	}
}

// BenchmarkRedisProcesses is BenchmarkProcesses on a Redis of this machine: as fast as they can, and
// one-shot processes, which is what commands in scripts are.
func BenchmarkRedisProcesses(b *testing.B) {
	server := redistest.Start(b)
	for _, mode := range []struct {
		name   string
		orders benchOrders
	}{
		{"unpaced", benchOrders{Span: 3 * time.Second}},
		{"one-shot", benchOrders{Span: 5 * time.Second, Once: true}},
	} {
		for _, n := range []int{1, 4, 16, 40, 100} {
			b.Run(fmt.Sprintf("%s/processes=%d", mode.name, n), func(b *testing.B) {
				var sum benchAnswer
				rounds := 0
				for b.Loop() {
					rounds++
					one, _ := benchProcesses(b, n, mode.orders, nil, server.URL(0))
					sum.add(one)
				}
				sum.report(b, time.Duration(rounds)*mode.orders.Span)
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// reportSyncs reports how often the disk is synced for a transaction.
func reportSyncs(b *testing.B, processes int, o benchOrders) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		b.Log("no fsyncs/group: install strace")
		return
	}
	trace := filepath.Join(b.TempDir(), "trace")
	_, groups := benchProcesses(b, processes, o, []string{strace, "-f", "-q", "-ff", "-e", "trace=fsync,fdatasync", "-o", trace}, "")
	syncs := 0
	for _, file := range must.Get(filepath.Glob(trace + ".*"))(b) {
		text := must.Get(os.ReadFile(file))(b)
		syncs += strings.Count(string(text), "fsync(") + strings.Count(string(text), "fdatasync(")
	}
	b.ReportMetric(float64(syncs)/float64(groups), "fsyncs/group")
}

// benchProcesses is what came of processes on a store at url, each started by way of wrap. Without a
// URL it is a file of their own; then groups is how many transactions they made.
func benchProcesses(b *testing.B, processes int, o benchOrders, wrap []string, url string) (sum benchAnswer, groups int64) {
	dir := b.TempDir()
	file := filepath.Join(dir, "q.db")
	o.Config = filepath.Join(dir, "costs.toml")
	must.Do(b, os.WriteFile(o.Config, fmt.Appendf(nil, benchConfig, cmp.Or(url, "sqlite:"+file)), 0o600))
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
				answers[i] = benchProcess(b, o, wrap)
				return
			}
			for end := o.Start.Add(o.Span); time.Now().Before(end); {
				began := time.Now()
				one := benchProcess(b, o, wrap)
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
	if url != "" {
		return sum, 0
	}
	db := must.Get(sql.Open("sqlite", file))(b)
	must.Do(b, db.QueryRow("SELECT version FROM budget").Scan(&groups))
	must.Do(b, db.Close())
	return sum, groups
}

// benchProcess is what came of one process. One that could not open the store counts
// as refused.
func benchProcess(b *testing.B, o benchOrders, wrap []string) (answer benchAnswer) {
	orders := must.Get(json.Marshal(o))(b)
	command := append(slices.Clone(wrap), os.Args[0])
	child := exec.CommandContext(b.Context(), command[0], command[1:]...)
	child.Env = append(os.Environ(), benchChild+"="+string(orders))
	child.Stderr = os.Stderr
	out, err := child.Output()
	if err != nil {
		return benchAnswer{Refused: 1}
	}
	check.NoError(b, json.Unmarshal(out, &answer))
	return answer
}
