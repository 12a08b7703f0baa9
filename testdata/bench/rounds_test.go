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

// rowsVariable names the contenders that take part, as a regular expression. The yardsticks
// always do.
const rowsVariable = "QUOTACTL_BENCH_ROWS"

// yardstick is a contender whose rate every other's is divided by. It takes a turn before
// and after each of theirs.
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
	// warm is how long it runs before its turn counts: three times its window, if as much is
	// to expire as is charged.
	warm time.Duration
	do   func(ctx context.Context) error
	// against is another contender of the group, whose rate this one's is divided by, and
	// as is the unit of that ratio; empty: the yardsticks alone.
	against, as string
}

// turn is what one contender did in its turn.
type turn struct {
	rate           float64 // charges a second
	server, client float64 // µs of CPU a charge: the server's main thread, this process
}

// mean is the mean of two turns.
func (t turn) mean(u turn) turn {
	return turn{(t.rate + u.rate) / 2, (t.server + u.server) / 2, (t.client + u.client) / 2}
}

// measured is a contender's turn, and what the yardsticks did just before and after it.
type measured struct {
	turn
	beside map[string]turn
}

// group has contenders take turns in one run, with so many goroutines each.
type group struct {
	goroutines int
	yardsticks []yardstick
	contenders []contender
	client     redis.UniversalClient // asks the server for its CPU time; nil: there is none
}

// warmed is how many charges each contender makes before its first turn: enough to make
// what a ledger makes once for each of a hundred operations.
const warmed = 500

// run has the contenders take turns for so many rounds, with the yardsticks between them,
// and reports the medians of each: a sub-benchmark only prints what was measured.
func (g group) run(b *testing.B) {
	rows, err := regexp.Compile(os.Getenv(rowsVariable))
	must.Do(b, err)
	rounds := effort.Of(20, 20, 20, 100)
	const span = 100 * time.Millisecond
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
	g.contenders = slices.DeleteFunc(g.contenders, func(c contender) bool { return !needed[c.name] })
	for _, c := range g.contenders {
		for n := 0; n < warmed && !b.Failed(); {
			calls, _ := spin(b, g.callers(c), span, c.do)
			n += calls * c.per
		}
	}
	took := map[string][]measured{}
	for range rounds {
		g.round(b, span, took)
		if b.Failed() {
			return
		}
	}
	for _, c := range g.contenders {
		b.Run(name+"/"+c.name, func(b *testing.B) { g.report(b, c, took) })
	}
}

// round gives each contender a turn. The yardsticks take shorter turns before and after it,
// so that what it is divided by is of the same moment.
func (g group) round(b *testing.B, span time.Duration, took map[string][]measured) {
	between := func() map[string]turn {
		list := map[string]turn{}
		for _, c := range g.contenders {
			if g.isYardstick(c) {
				list[c.name] = g.turn(b, c, span/2)
			}
		}
		for name, one := range list {
			took[name] = append(took[name], measured{one, list})
		}
		return list
	}
	before := between()
	for _, c := range g.contenders {
		if g.isYardstick(c) || b.Failed() {
			continue
		}
		one := g.turn(b, c, span)
		after, beside := between(), map[string]turn{}
		for name := range after {
			beside[name] = before[name].mean(after[name])
		}
		took[c.name] = append(took[c.name], measured{one, beside})
		before = after
	}
}

func (g group) isYardstick(c contender) bool {
	return slices.ContainsFunc(g.yardsticks, func(y yardstick) bool { return y.name == c.name })
}

// callers is how many goroutines call a contender.
func (g group) callers(c contender) int {
	if c.goroutines > 0 {
		return c.goroutines
	}
	return g.goroutines
}

// report prints the medians of a contender's rounds.
func (g group) report(b *testing.B, c contender, took map[string][]measured) {
	own := took[c.name]
	median := func(of func(m measured) float64) float64 {
		list := make([]float64, len(own))
		for i := range own {
			list[i] = of(own[i])
		}
		slices.Sort(list)
		return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(func(m measured) float64 { return m.rate }), "charges/s")
	for _, y := range g.yardsticks {
		b.ReportMetric(median(func(m measured) float64 { return m.rate / m.beside[y.name].rate }), y.as)
		if y.times != "" {
			b.ReportMetric(median(func(m measured) float64 { return m.beside[y.name].rate / m.rate }), y.times)
		}
	}
	b.ReportMetric(median(func(m measured) float64 { return 1e6 / m.rate }), "µs/charge")
	b.ReportMetric(median(func(m measured) float64 { return m.client }), "client-µs")
	first := g.yardsticks[0]
	if g.client != nil {
		b.ReportMetric(median(func(m measured) float64 { return m.server }), "server-µs")
		b.ReportMetric(median(func(m measured) float64 { return m.server / m.beside[first.name].server }), "server-"+first.as)
	}
	if c.against != "" { // each by the first yardstick, which was measured beside both
		i := 0
		b.ReportMetric(median(func(m measured) float64 {
			other := took[c.against][i]
			i++
			return (m.rate / m.beside[first.name].rate) / (other.rate / other.beside[first.name].rate)
		}), c.as)
	}
}

// turn is one contender's turn of about so long.
func (g group) turn(b *testing.B, c contender, span time.Duration) turn {
	if c.warm > 0 {
		spin(b, g.callers(c), c.warm, c.do)
	}
	server, client := g.serverCPU(b), clientCPU(b)
	n, took := spin(b, g.callers(c), span, c.do)
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
