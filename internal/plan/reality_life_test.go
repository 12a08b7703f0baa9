package plan_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs"
	"github.com/quotactl/quotactl/jobs/needs"
	"github.com/quotactl/quotactl/jobs/sandbox"
)

// mostAttempts is how often a valid configuration is drawn for.
const mostAttempts = 200

// drawn is the first valid day of a seed, as the real loaders see it.
func drawn(t *testing.T, seed uint64, learned bool) *day {
	t.Helper()
	path := filepath.Join(t.TempDir(), "costs.toml")
	var last error
	for attempt := range uint64(mostAttempts) {
		y := draw(seed, attempt, learned)
		must.Do(t, os.WriteFile(path, []byte(y.config), 0o600))
		_, _, err := load(path)
		if err == nil {
			return y
		}
		last = err
	}
	t.Fatalf("seed %d: no valid configuration in %d attempts: %v", seed, mostAttempts, last)
	return nil
}

func load(path string) (*config.Config, []*jobs.Job, error) {
	cfg, err := config.Parse(path)
	if err != nil {
		return nil, nil, err
	}
	list := jobs.Load(cfg)
	return cfg, list, cfg.Err()
}

// spread is how much the pages of a run differ from the mean, where needs are learned.
type spread int

// The standard deviation is 4 or 8 % of the mean, and no run differs by more than two of them; or few runs take many more
// pages than the mean.
const (
	narrow spread = iota
	wide
	skewed
)

// skew is the same of the logarithm of the pages, where they are skewed: of ten runs one takes more than 1.7 times the mean,
// and six take less than it.
const skew = 0.5

// pagesOf is how many pages a run truly has: of learned needs it differs from run to run.
func (y *day) pagesOf(job, region, tick string) int {
	mean := y.jobs[y.place(job)].pages
	if !y.learned {
		return mean
	}
	h := fnv.New64a()
	_, _ = io.WriteString(h, job+" "+region+" "+tick)
	luck := min(2, max(-2, rand.New(rand.NewPCG(y.seed+y.luck<<32, h.Sum64())).NormFloat64()))
	factor := 1 + 0.04*luck
	switch y.spread {
	case wide:
		factor = 1 + 0.08*luck
	case skewed:
		factor = math.Exp(skew*luck - skew*skew/2)
	}
	return max(1, int(math.Round(float64(mean)*factor)))
}

// place is a job's among those of the day.
func (y *day) place(job string) int {
	return slices.IndexFunc(y.jobs, func(j drawnJob) bool { return j.name == job })
}

// life is a day that is lived in fake time.
type life struct {
	t       *testing.T
	day     *day
	path    string
	store   *memstore.Store
	network *network
	budgets map[string]*budget.Budget
	list    []*jobs.Job
	state   *ordered
	cuts    refusals
	// later is done once at an instant of the day, while the daemon is running.
	later   func()
	laterAt time.Time
}

// live lives a day. ask is called as it begins, with the store as it stands then; nil: nobody asks.
func live(t *testing.T, y *day, ask func(context.Context, Question)) (lived Lived) {
	t.Helper()
	return liveAsked(t, y, y.start, ask)
}

// liveAsked lives a day, and asks at an instant of it.
func liveAsked(t *testing.T, y *day, at time.Time, ask func(context.Context, Question)) (lived Lived) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so that what happens at one instant has mostly one order
	folder := inMemory(t)
	path := filepath.Join(folder, "costs.toml")
	must.Do(t, os.WriteFile(path, []byte(y.config), 0o600))
	synctest.Test(t, func(t *testing.T) {
		first := y.start.Add(-27 * time.Hour)
		<-time.After(time.Until(first))
		l := newLife(t, y, path)
		l.teach()
		l.before()
		asked := func() {
			if ask != nil {
				ask(t.Context(), Question{Config: y.config, Path: path, Start: at, Until: y.until, Store: l.store})
			}
		}
		if at.Equal(y.start) {
			asked()
		} else {
			l.later, l.laterAt = asked, at
		}
		lived.Left = l.daemon(y.until)
		lived.Passes = l.passes()
		lived.Requests = l.requests()
		lived.Charges = l.calls()
		lived.Moves = l.state.moves
	})
	return lived
}

func newLife(t *testing.T, y *day, path string) *life {
	t.Helper()
	cfg, list, err := load(path)
	must.Do(t, err)
	l := &life{t: t, day: y, path: path, list: list, store: memstore.New(nil), budgets: map[string]*budget.Budget{}}
	l.state = &ordered{Store: l.store, jobs: map[string]int{}, regions: map[string]int{}, takes: map[string]int64{}}
	for i, j := range list {
		l.state.jobs[j.Name] = i
	}
	for i, region := range allRegions {
		l.state.regions[region] = i
	}
	for _, name := range cfg.Budgets() {
		spec := must.Get(cfg.Spec(name))(t)
		l.budgets[name] = must.Get(budget.New(l.state, spec))(t)
	}
	upstream := must.Get(sandbox.New(sandbox.Config{Quota: limit.MaxUnits, Results: 1000}))(t)
	l.network = &network{sandbox: upstream, pages: y.pagesOf, asked: map[string]int{}}
	return l
}

// taught is how many complete runs of each region there were before a day whose needs are to be learned.
const taught = 40

// teach records passes of before the day, from which needs are learned.
func (l *life) teach() {
	if !l.day.learned {
		return
	}
	for i, j := range l.list {
		about := l.day.jobs[i]
		_, _, ticks := j.Schedule.Between(l.day.start.Add(-60*24*time.Hour), l.day.start.Add(-27*time.Hour), taught)
		var records []driver.JobRecord
		for _, tick := range ticks {
			record := jobs.Record{
				Tick: jobs.InstantOf(tick.UnixMicro()), Kind: jobs.Scheduled, Outcome: jobs.Succeeded,
				Started: jobs.InstantOf(tick.UnixMicro()), Ended: jobs.InstantOf(tick.Add(time.Minute).UnixMicro()),
			}
			for _, region := range j.Regions {
				pages := l.day.pagesOf(j.Name, region, tick.UTC().Format(jobs.TickFormat))
				units := int64(pages) * about.price
				record.Units += units
				record.Runs = append(record.Runs, jobs.Run{
					Region: region, Outcome: jobs.Succeeded, Started: record.Started, Ended: record.Ended, Units: units, Calls: pages, Pages: pages, Attempts: 1,
					Spent: []needs.Amount{{Operation: about.operation, Units: units, Calls: int64(pages)}},
				})
			}
			records = append(records, driver.JobRecord{At: tick.UnixMicro(), ID: fmt.Sprintf("taught/%d", tick.Unix()), Text: must.Get(jsonOf(record))(l.t)})
		}
		swapped := must.Get(l.store.SwapJob(l.t.Context(), driver.JobSwap{Job: j.Name, Records: records}))(l.t)
		must.Equal(l.t, swapped, true, "records of", j.Name)
	}
}

// before makes the charges of before the day, and has a daemon see the jobs if none is to be running then.
func (l *life) before() {
	y := l.day
	seen := y.start.Add(-y.down)
	see := func(until time.Time) {
		if y.down > 0 && !seen.IsZero() && !seen.After(until) {
			<-time.After(time.Until(seen))
			l.daemon(seen.Add(time.Second))
			seen = time.Time{}
		}
	}
	for _, one := range y.before {
		see(one.at)
		<-time.After(time.Until(one.at))
		_, err := l.budgets[one.budget].Charge(l.t.Context(), budget.Call{Operation: one.operation, Units: &one.units, Labels: budget.Labels{Job: one.job}})
		if err != nil && !errors.Is(err, budget.ErrExhausted) && !errors.Is(err, budget.ErrNeverFits) {
			l.t.Fatal(err)
		}
	}
	see(y.start)
	<-time.After(time.Until(y.start))
	if y.lock.span > 0 {
		_, err := l.budgets[y.lock.budget].Lock(l.t.Context(), budget.LockOrder{Until: budget.Until{At: y.start.Add(y.lock.span)}, Why: "a test", ByHand: true})
		must.Do(l.t, err)
	}
}

// daemon runs a daemon until an instant, and returns what was left at the resets.
func (l *life) daemon(until time.Time) (left []Left) {
	runner, err := jobs.New(l.list, jobs.Options{
		State: l.state, Budgets: l.budgets, Transport: l.network, Log: l.cuts.log(),
		Poll:   time.Minute, // nobody asks anything of a job
		Jitter: func() float64 { return 0 },
		Env:    func(string) (string, bool) { return "key", true },
	})
	must.Do(l.t, err)
	drain := make(chan struct{})
	var working sync.WaitGroup
	working.Go(func() { check.NoError(l.t, runner.Run(l.t.Context(), drain, false)) })
	for _, r := range l.resets(until) {
		l.sleepUntil(r.At.Add(-time.Millisecond))
		status := must.Get(l.budgets[r.Budget].Status(l.t.Context()))(l.t)
		for _, s := range status.Limits {
			if s.Name == r.Limit {
				r.Units = s.Remaining
			}
		}
		left = append(left, r)
	}
	l.sleepUntil(until)
	close(drain)
	working.Wait()
	return left
}

// sleepUntil waits until an instant; what is to be done before is done.
func (l *life) sleepUntil(at time.Time) {
	if l.later != nil && !l.laterAt.After(at) {
		<-time.After(time.Until(l.laterAt))
		l.later()
		l.later = nil
	}
	<-time.After(time.Until(at))
}

// resets are those of the calendars, by instant.
func (l *life) resets(until time.Time) (list []Left) {
	for name, b := range l.budgets {
		for _, one := range b.Spec().Limits {
			if one.Window.Kind != limit.CalendarKind {
				continue
			}
			for at, ok := b.NextReset(one.Name, time.Now()); ok && at.Before(until); at, ok = b.NextReset(one.Name, at) {
				list = append(list, Left{Budget: name, Limit: one.Name, At: at})
			}
		}
	}
	slices.SortFunc(list, func(a, b Left) int {
		if n := a.At.Compare(b.At); n != 0 {
			return n
		}
		return strings.Compare(a.Budget+" "+a.Limit, b.Budget+" "+b.Limit)
	})
	return list
}

// requests is what the sandbox counted, over all of its days.
func (l *life) requests() (sum int64) {
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	for _, n := range l.network.asked {
		sum += int64(n)
	}
	return sum
}

// inMemory is a folder that is gone with the test, where the machine has one in memory: each file is flushed to disk.
func inMemory(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("/dev/shm", "plan")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { check.NoError(t, os.RemoveAll(folder)) })
	return folder
}
