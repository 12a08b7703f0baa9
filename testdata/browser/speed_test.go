package browser

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/must"
)

// The size of the large world.
const (
	manyCharges = 1_000_000
	manyJobs    = 1_000
	loads       = 9 // of each page
)

// large is a world with a ledger of a million charges and a thousand jobs, each of which runs
// once a day.
func large(b *testing.B) *world {
	b.Helper()
	var config strings.Builder
	config.WriteString(`
[store]
url = "sqlite:quotactl.db"
timeout = "1m"
[upstream.youtube.costs]
"search.list" = 100
"videos.list" = 1
[upstream.youtube.limit.daily]
quota    = 10_000_000
headroom = 500_000
window   = "24h"
[upstream.youtube.limit.pacific-day]
quota    = 10_000_000
headroom = 500_000
calendar = "day"
timezone = "America/Los_Angeles"
[upstream.youtube.credential.key1]
`)
	p := newPast(time.Now())
	for n := range manyJobs {
		name := fmt.Sprintf("job-%04d", n)
		minute := n * 24 * 60 / manyJobs
		fmt.Fprintf(&config, "[job.%s]\nbudget = \"youtube/key1\"\nschedule = \"%d %d * * *\"\nneeds = { \"videos.list\" = %d }\ncommand = [\"true\"]\n",
			name, minute%60, minute/60, manyCharges/manyJobs)
		tick := p.now.Truncate(24 * time.Hour).Add(time.Duration(minute) * time.Minute)
		if tick.After(p.now.Add(-time.Hour)) {
			tick = tick.Add(-24 * time.Hour)
		}
		p.pass("youtube/key1", name, tick, []string{""}, "videos.list", 1, manyCharges/manyJobs)
	}
	slices.SortFunc(p.charges["youtube/key1"], func(a, b charged) int { return a.At.Compare(b.At) })
	w := newWorld(b, config.String())
	file := w.write("export.jsonl", export(b, "youtube/key1", p.now, p.charges["youtube/key1"]))
	w.run(0, "import", file)
	must.Do(b, os.Remove(file))
	store := must.Get(sqlitestore.Open(b.Context(), filepath.Join(w.dir, "quotactl.db"), sqlitestore.Options{Timeout: time.Minute}))(b)
	p.record(b.Context(), b, store)
	must.Do(b, store.Close())
	w.start()
	return w
}

// timing is when a page was there, in ms since it was asked for.
type timing struct {
	Answer float64 `json:"answer"` // its last byte
	Paint  float64 `json:"paint"`  // its first content on the screen
}

const readTiming = `new Promise(resolve => {
	const read = () => {
		const paint = performance.getEntriesByName("first-contentful-paint")[0];
		if (!paint) return requestAnimationFrame(read);
		resolve({answer: performance.getEntriesByType("navigation")[0].responseEnd, paint: paint.startTime});
	};
	read();
})`

// BenchmarkPages measures how long each page takes until its first content is on the screen,
// beside /healthz, which is two letters from the same daemon: medians of some loads. Run it
// with -benchtime 1x.
func BenchmarkPages(b *testing.B) {
	w := large(b)
	const budget = "youtube%2Fkey1"
	for _, path := range []string{"/healthz", "/", "/budget?name=" + budget, "/jobs", "/job?name=job-0007", "/runs", "/plan", "/why?budget=" + budget + "&operation=videos.list", "/alerts"} {
		b.Run("page="+strings.Split(path, "?")[0], func(b *testing.B) {
			tab := newTab(b, w.host())
			tab.size(desk, false)
			var answers, paints []float64
			for range loads {
				tab.visit(w.url+path, 200)
				t := eval[timing](tab, readTiming)
				answers, paints = append(answers, t.Answer), append(paints, t.Paint)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(paints[0], "first-paint-ms")
			b.ReportMetric(median(paints), "paint-ms")
			b.ReportMetric(median(answers), "answer-ms")
		})
	}
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

// watched is how long it is measured what the daemon computes, unless PAGE_WATCHED says so, as 10m.
func watched(b *testing.B) time.Duration {
	if text := os.Getenv("PAGE_WATCHED"); text != "" {
		return must.Get(time.ParseDuration(text))(b)
	}
	return time.Minute
}

// BenchmarkOpenPage measures what the daemon computes, in percent of a core: with no page open,
// with one, with five, and with five while a unit is charged each second.
func BenchmarkOpenPage(b *testing.B) {
	w := large(b)
	charge := w.command("charge", "youtube/key1", "videos.list")
	for _, c := range []struct {
		name    string
		pages   int
		charged bool
	}{{"none", 0, false}, {"one", 1, false}, {"five", 5, false}, {"none-charging", 0, true}, {"five-charging", 5, true}} {
		b.Run("open="+c.name, func(b *testing.B) {
			for range c.pages {
				newTab(b, w.host()).visit(w.url+"/", 200)
			}
			before := computed(b, w.daemon.Process.Pid)
			ctx, cancel := context.WithTimeout(b.Context(), watched(b))
			defer cancel()
			seconds := time.NewTicker(time.Second)
			defer seconds.Stop()
			for ctx.Err() == nil {
				select {
				case <-ctx.Done():
				case <-seconds.C:
					if c.charged {
						w.run(0, charge.Args[1:]...)
					}
				}
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(100*(computed(b, w.daemon.Process.Pid)-before).Seconds()/watched(b).Seconds(), "%core")
		})
	}
}

// computed is how long a process has computed, for itself and in the kernel (Linux).
func computed(b *testing.B, pid int) time.Duration {
	b.Helper()
	text := string(must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)))(b))
	fields := strings.Fields(text[strings.LastIndex(text, ")")+1:])
	user := must.Get(strconv.ParseInt(fields[11], 10, 64))(b)
	system := must.Get(strconv.ParseInt(fields[12], 10, 64))(b)
	return time.Duration(user+system) * time.Second / 100 // USER_HZ
}

// BenchmarkLiveUpdate measures how long after a charge the number on an open page changes.
func BenchmarkLiveUpdate(b *testing.B) {
	w := rich(b)
	w.start()
	tab := newTab(b, w.host())
	tab.visit(w.url+"/budget?name=youtube/key1", 200)
	var took []float64
	for range loads {
		took = append(took, float64(tab.charges(w).Milliseconds()))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(took), "ms")
}
