package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs"
	"github.com/quotactl/quotactl/jobs/schedule"
)

// patient is a job on a store, for which a test does what a daemon would.
type patient struct {
	t     *testing.T
	store open.Backend
	job   *jobs.Job
	out   strings.Builder
}

func newPatient(t *testing.T) *patient {
	t.Helper()
	schedule := must.Get(schedule.Parse("0 * * * *", "UTC"))(t)
	return &patient{
		t: t, store: memstore.New(func() int64 { return time.Now().UnixMicro() }),
		job: &jobs.Job{Name: "pull", Schedule: schedule, Regions: []string{"US", "DE"}, History: time.Hour},
	}
}

// trigger asks for a pass and waits for it.
func (p *patient) trigger(ctx context.Context, f triggerFlags) error {
	a := &app{stdout: &p.out, now: time.Now}
	return a.trigger(ctx, p.store, p.job, f)
}

// document puts a document in the place of the job's, with the request that waits
// for REQUEST, and records.
func (p *patient) document(text string, records ...driver.JobRecord) {
	p.t.Helper()
	found := must.Get(p.store.Job(p.t.Context(), p.job.Name))(p.t)
	var document struct{ Requests []json.RawMessage }
	must.Do(p.t, json.Unmarshal(found.Text, &document))
	for _, request := range document.Requests {
		text = strings.ReplaceAll(text, "REQUEST", string(request))
	}
	if swapped, err := p.store.SwapJob(p.t.Context(), driver.JobSwap{Job: p.job.Name, Version: found.Version, Text: []byte(text), Records: records}); err != nil || !swapped {
		p.t.Fatal(swapped, err)
	}
}

// underWayText is a document with the pass that was asked for under way.
func underWayText() string {
	return fmt.Sprintf(`{"active":[{"holder":"web1/7/x","tick":%d,"kind":"trigger","fence":1,"since":%[1]d,"until":%d,"request":REQUEST,"progress":%s}]}`,
		time.Now().UnixMicro(), time.Now().Add(time.Hour).UnixMicro(), `{"runs":[{"region":"US","outcome":"succeeded","units":3},{"region":"DE"}]}`)
}

// A pass that is waited for is shown as soon as it has ended, and tells the exit code.
func TestTriggerWaits(t *testing.T) {
	for outcome, code := range map[jobs.Outcome]int{
		jobs.Succeeded: exitDone, jobs.Exhausted: exitDone, jobs.Skipped: exitDone, jobs.Failed: exitFailed, jobs.TimedOut: exitFailed, jobs.Lost: exitFailed,
		jobs.Drained: exitFailed, // as a person has ended it
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newPatient(t)
			began := time.Now()
			time.AfterFunc(2*time.Second, func() { p.document(underWayText()) })
			time.AfterFunc(10*time.Second, func() {
				views, err := jobs.Look(t.Context(), p.store, []*jobs.Job{p.job})
				if err != nil || len(views[0].Active) != 1 {
					t.Errorf("%+v, %v", views, err)
					return
				}
				now := jobs.Instant{Time: time.Now()}
				record := jobs.Record{Tick: now, Kind: jobs.Triggered, Outcome: outcome, Request: views[0].Active[0].Request, Note: views[0].Active[0].Note, Units: 3, Runs: []jobs.Run{
					{Region: "US", Outcome: outcome, Started: now, Ended: now, Units: 3, Pages: 3},
				}}
				if outcome == jobs.Drained {
					record.Reason = jobs.ReasonCancelled
				}
				p.document(`{}`, driver.JobRecord{At: now.UnixMicro(), ID: "x", Text: compact(t, record)})
			})
			err := p.trigger(t.Context(), triggerFlags{note: "a try", regions: []string{"US"}, wait: time.Minute})
			if exitCode(err) != code {
				t.Errorf("%s: %v, want exit code %d", outcome, err, code)
			}
			if took := time.Since(began); took < 10*time.Second || took > 10*time.Second+waitLook {
				t.Errorf("%s: it was waited for %s", outcome, took)
			}
			want := "JOB   REGIONS  DONE\npull  US       a pass is requested\n  no daemon has looked at it on this store yet\n  no daemon is running on this store: the pass waits until you start one\n  (quotactl run)\n\nTICK "
			if !strings.HasPrefix(p.out.String(), want) || !strings.Contains(p.out.String(), fmt.Sprintf("US      %s ", outcome)) || !strings.Contains(p.out.String(), ": a try\n") {
				t.Errorf("%s:\n%s", outcome, p.out.String())
			}
		})
	}
}

// A pass that has not ended in time says how far it has come, and what stays requested.
func TestTriggerWaitsNoLonger(t *testing.T) {
	for name, test := range map[string]struct {
		then func(p *patient)
		want string
		code int
	}{
		"no daemon": {func(*patient) {}, "trigger pull: no daemon has started the pass within 30s; is one running on this store? The request remains until one starts it", exitFailed},
		"under way": {func(p *patient) { p.document(underWayText()) }, "trigger pull: not finished within 30s: the pass of 2000-01-01 00:00:05Z is under way since 2000-01-01 00:00:05Z, in process 7 on web1: 1/2 runs ended, 3 units; requested by ", exitFailed},
		"forgotten": {func(p *patient) { p.document(`{}`) }, "trigger pull: the pass has ended, and its record is no longer kept", exitFailed},
		"away":      {func(*patient) {}, "trigger pull: the request remains; its state is unknown: ", exitUnavailable},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newPatient(t)
			if name == "away" {
				p.store = &goesAway{Backend: p.store, at: time.Now().Add(5 * time.Second)}

			}
			time.AfterFunc(5*time.Second, func() { test.then(p) })
			err := p.trigger(t.Context(), triggerFlags{wait: 30 * time.Second, json: true})
			if err == nil || !strings.HasPrefix(err.Error(), test.want) || exitCode(err) != test.code {
				t.Errorf("%s: %v, want %s", name, err, test.want)
			}
			var answer struct {
				Job     string
				Request struct{ ID, By string }
				Pass    *jobs.Record
			}
			if err := json.Unmarshal([]byte(p.out.String()), &answer); err != nil || answer.Job != "pull" || answer.Request.ID == "" || answer.Request.By == "" || answer.Pass != nil {
				t.Errorf("%s: %s, %v", name, p.out.String(), err)
			}
		})
	}
}

// goesAway is a store that does not answer from an instant on; one that is deaf takes
// no change.
type goesAway struct {
	open.Backend
	at   time.Time
	deaf bool
}

func (g *goesAway) SwapJob(ctx context.Context, swap driver.JobSwap) (bool, error) {
	if g.deaf {
		return false, fmt.Errorf("swap job: %w", budget.ErrUnavailable)
	}
	return g.Backend.SwapJob(ctx, swap)
}

func (g *goesAway) Jobs(ctx context.Context, names []string) ([]driver.JobDocument, error) {
	if !time.Now().Before(g.at) {
		return nil, fmt.Errorf("read jobs: %w", budget.ErrUnavailable)
	}
	return g.Backend.Jobs(ctx, names)
}

// Whether a pass is requested may not be known.
func TestTriggerOfAStoreThatDoesNotAnswer(t *testing.T) {
	p := newPatient(t)
	p.store = &goesAway{Backend: p.store, at: time.Now().Add(time.Hour), deaf: true}
	err := p.trigger(t.Context(), triggerFlags{})
	if exitCode(err) != exitUnavailable || !strings.HasSuffix(err.Error(), "; the request may still be stored: see quotactl jobs pull") || p.out.Len() > 0 {
		t.Errorf("%v\n%s", err, p.out.String())
	}
}

// mute is a store that takes no news for the daemons.
type mute struct{ open.Backend }

func (m mute) SwapJob(ctx context.Context, swap driver.JobSwap) (bool, error) {
	if swap.Job == "@news" {
		return false, budget.ErrUnavailable
	}
	return m.Backend.SwapJob(ctx, swap)
}

// It is no failure if the daemons could not be notified: the request stays, and they find it.
func TestTriggerUntold(t *testing.T) {
	p := newPatient(t)
	p.store = mute{p.store}
	check.NoError(t, p.trigger(t.Context(), triggerFlags{}))
	if words := strings.Join(strings.Fields(p.out.String()), " "); !strings.Contains(words, "a pass is requested") || !strings.Contains(words, "the daemons could not be notified at once") || !strings.Contains(words, "daemon notices within a minute") {
		t.Errorf("it said\n%s", p.out.String())
	}
	views, err := jobs.Look(t.Context(), p.store, []*jobs.Job{p.job})
	if err != nil || len(views[0].Requests) != 1 {
		t.Errorf("%+v, %v", views, err)
	}
}

// Trigger tells a caller that does not wait any longer that the request stays.
func TestTriggerIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(t)
		ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Second, context.Canceled)
		defer cancel()
		err := p.trigger(ctx, triggerFlags{wait: time.Hour})
		if !errors.Is(err, context.Canceled) || exitCode(err) != exitInterrupted || !strings.Contains(err.Error(), "the request remains") {
			t.Errorf("%v", err)
		}
	})
}

// What may keep a pass from beginning at once is said.
func TestTriggerSaysWhatIsInTheWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(t)
		since := jobs.Instant{Time: time.Now()}
		keep(t, p.store, "pull", fmt.Sprintf(`{"schedule":"0 * * * * UTC","until":%d,"active":[{"holder":"web1/7/x","tick":1,"kind":"schedule","fence":1,"since":1,"until":1}],
			"pause":{"note":"until Friday","by":"ann@web1","at":"2000-01-01T00:00:00.000000Z"},"requests":[{"id":"A","by":"bob","at":"2000-01-01T00:00:00.000000Z"}]}`,
			since.Add(-3*time.Hour).UnixMicro()))
		must.Do(t, p.trigger(t.Context(), triggerFlags{}))
		const want = `JOB   REGIONS  DONE
pull  all      a pass is requested
  the pass of 1970-01-01 00:00:01Z is under way since 1970-01-01 00:00:01Z, in
  process 7 on web1; its process stopped renewing its claim
  paused by ann@web1 since 2000-01-01 00:00:00Z: until Friday; its ticks are
  skipped, the next at 2000-01-01 01:00:00Z
  another request waits before it
  no daemon has taken its tick of 1999-12-31 22:00:00Z: is one running?
  no daemon is running on this store: the pass waits until you start one
  (quotactl run)
`
		check.Equal(t, p.out.String(), want, "it said")
	})
}
