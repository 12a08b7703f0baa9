package bench

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// What can be chosen by variables: how many rounds are counted, how long each contender's
// turn is, and which contenders take part, as a regular expression. The yardsticks always
// do.
const (
	roundsVariable = "QUOTACTL_BENCH_ROUNDS"
	turnVariable   = "QUOTACTL_BENCH_TURN_MS"
	rowsVariable   = "QUOTACTL_BENCH_ROWS"
)

// yardstick is a contender whose rate every other's is divided by, in each round.
type yardstick struct {
	name, as string // as is the unit of that ratio
	times    string // the unit of its inverse: how many times as long it takes; empty: not reported
}

// contender is something whose speed is measured beside others'.
type contender struct {
	name string
	// per is how many charges one call of do makes.
	per int
	// goroutines call do in turn; 0: as many as the group has.
	goroutines int
	// warm is how long it runs before its turn counts: as long as its window, if something
	// of it is to expire at each charge.
	warm time.Duration
	do   func(ctx context.Context) error
	// against is another contender of the group, whose rate this one's is divided by, and
	// as is the unit of that ratio; empty: the yardsticks alone.
	against, as string
}

// turn is what one contender did in one round.
type turn struct {
	rate           float64 // charges a second
	server, client float64 // µs of CPU a charge: the server's main thread, this process
}

// group has contenders take turns in one run, with so many goroutines each.
type group struct {
	goroutines int
	yardsticks []yardstick
	contenders []contender
	client     redis.UniversalClient // asks the server for its CPU time; nil: there is none
}

// run has the contenders take turns for so many rounds, after one that is not counted, and
// reports the medians of each: a sub-benchmark only prints what was measured.
func (g group) run(b *testing.B) {
	rows, err := regexp.Compile(os.Getenv(rowsVariable))
	must.Do(b, err)
	rounds := int(effort.Number(b, roundsVariable, 12))
	span := time.Duration(effort.Number(b, turnVariable, 100)) * time.Millisecond
	name := fmt.Sprintf("goroutines=%d", g.goroutines)
	needed := map[string]bool{}
	for _, c := range g.contenders {
		if rows.MatchString(name + "/" + c.name) {
			needed[c.name], needed[c.against] = true, true
		}
	}
	if len(needed) == 0 {
		return
	}
	for _, y := range g.yardsticks {
		needed[y.name] = true
	}
	took := map[string][]turn{}
	for round := range rounds + 1 {
		for _, c := range g.contenders {
			if !needed[c.name] {
				continue
			}
			if one := g.turn(b, c, span); round > 0 {
				took[c.name] = append(took[c.name], one)
			}
			if b.Failed() {
				return
			}
		}
	}
	for _, c := range g.contenders {
		if needed[c.name] {
			b.Run(name+"/"+c.name, func(b *testing.B) { g.report(b, c, took) })
		}
	}
}

// report prints the medians of a contender's rounds. Ratios are of rates in the same round.
func (g group) report(b *testing.B, c contender, took map[string][]turn) {
	own := took[c.name]
	median := func(of func(i int) float64) float64 {
		list := make([]float64, len(own))
		for i := range own {
			list[i] = of(i)
		}
		slices.Sort(list)
		return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
	}
	ratio := func(to string) float64 {
		return median(func(i int) float64 { return own[i].rate / took[to][i].rate })
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(func(i int) float64 { return own[i].rate }), "charges/s")
	for _, y := range g.yardsticks {
		b.ReportMetric(ratio(y.name), y.as)
		if y.times != "" {
			b.ReportMetric(median(func(i int) float64 { return took[y.name][i].rate / own[i].rate }), y.times)
		}
	}
	b.ReportMetric(median(func(i int) float64 { return 1e6 / own[i].rate }), "µs/charge")
	b.ReportMetric(median(func(i int) float64 { return own[i].client }), "client-µs")
	if g.client != nil {
		b.ReportMetric(median(func(i int) float64 { return own[i].server }), "server-µs")
		first := took[g.yardsticks[0].name]
		b.ReportMetric(median(func(i int) float64 { return own[i].server / first[i].server }), "server-"+g.yardsticks[0].as)
	}
	if c.against != "" {
		b.ReportMetric(ratio(c.against), c.as)
	}
}

// turn is one contender's turn of about so long.
func (g group) turn(b *testing.B, c contender, span time.Duration) turn {
	goroutines := c.goroutines
	if goroutines == 0 {
		goroutines = g.goroutines
	}
	if c.warm > 0 {
		spin(b, goroutines, c.warm, c.do)
	}
	server, client := g.serverCPU(b), clientCPU(b)
	n, took := spin(b, goroutines, span, c.do)
	charges := float64(n * c.per)
	if charges == 0 {
		b.Errorf("%s did nothing in %s", c.name, span)
		return turn{}
	}
	return turn{charges / took.Seconds(), (g.serverCPU(b) - server) / charges, (clientCPU(b) - client) / charges}
}

// spin calls do from several goroutines for about span. It returns how often, and how long
// that took.
func spin(b *testing.B, goroutines int, span time.Duration, do func(context.Context) error) (calls int, took time.Duration) {
	var n atomic.Int64
	var over atomic.Bool
	var all sync.WaitGroup
	timer := time.AfterFunc(span, func() { over.Store(true) })
	defer timer.Stop()
	began := time.Now()
	for range goroutines {
		all.Go(func() {
			for !over.Load() {
				if err := do(b.Context()); err != nil {
					b.Error(err)
					return
				}
				n.Add(1)
			}
		})
	}
	all.Wait()
	return int(n.Load()), time.Since(began)
}

// serverCPU is the CPU time in µs that the server's main thread has used.
func (g group) serverCPU(b *testing.B) float64 {
	if g.client == nil {
		return 0
	}
	text := must.Get(g.client.Info(b.Context(), "cpu").Result())(b)
	seconds, found := 0.0, 0
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_sys_main_thread" || name == "used_cpu_user_main_thread" {
			seconds += must.Get(strconv.ParseFloat(value, 64))(b)
			found++
		}
	}
	if found != 2 {
		b.Fatal("the server does not say what its main thread has used: use Redis 6.2 or later")
	}
	return seconds * 1e6
}

// clientCPU is the CPU time in µs that this process has used.
func clientCPU(b *testing.B) float64 {
	var used syscall.Rusage
	must.Do(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e3
}
