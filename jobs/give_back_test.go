package jobs

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// A pass that has started nothing when its daemon stops is another's, which tells of its
// runs.
func TestAPassIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: "schedule = \"0 * * * *\""})
		w.list[0].BudgetParallel = 1
		free := w.busy()
		var told telling
		w.options.Observe, w.options.Ping = &told, told.ping
		w.follow(false, time.Hour+10*time.Second)
		check.Equal(t, len(told.runs), 0, "runs told of")
		w.logged("pass given back", "job=trending", "tick=2000-01-01T01:00:00Z")
		if s := w.state(); len(s.Active) != 0 || len(s.Waiting) != 1 {
			t.Errorf("state %+v", s)
		}
		free()
		w.follow(false, 10*time.Second)
		check.EqualSlices(t, w.history(), []string{"1h0m0s succeeded"}, "history")
		w.tellsEach(&told)
		if len(told.runs) != len(allRegions) || told.runs["US succeeded"] != 1 {
			t.Errorf("told of the runs %v", told.runs)
		}
	})
}

// A request stays when its pass is given back; a manual pass is nobody else's.
func TestWhoseAPassIsThatWasNotStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{})
		w.list[0].BudgetParallel = 1
		defer w.busy()()
		asked := must.Get(Trigger(t.Context(), w.store, w.list[0], []string{"GB"}, "to try"))(t)
		stop := w.daemon(false)
		after(10 * time.Second)
		if s := w.state(); len(s.Active) != 1 || len(s.Requests) != 0 {
			t.Errorf("state %+v", s)
		}
		stop()
		if s := w.state(); len(s.Active) != 0 || len(s.Waiting) != 0 || len(s.Requests) != 1 || s.Requests[0].ID != asked.ID || len(w.history()) != 0 {
			t.Errorf("state %+v, history %s", s, w.history())
		}
		if p := w.drained(10 * time.Second); p.Outcome != Skipped || p.Reason != ReasonDrained {
			t.Errorf("pass %+v", p)
		}
		if s := w.state(); len(s.Active) != 0 || len(s.Waiting) != 0 || len(w.history()) != 1 {
			t.Errorf("state %+v, history %s", s, w.history())
		}
	})
}

// A pass that a person has ended is given to nobody, though its daemon stops before it hears
// of that: its tick or request ends in a record.
func TestACancelledPassIsNotGivenBack(t *testing.T) {
	for name, asked := range map[string]bool{"a tick": false, "a request": true} {
		inBubble(t, name, func(t *testing.T) {
			w := newWorld(t, setup{job: "schedule = \"0 * * * *\""})
			job := w.list[0]
			job.BudgetParallel = 1
			defer w.busy()()
			w.options.Poll = DefaultPoll
			stop := w.daemon(false)
			var request Request
			if asked {
				var err error
				request, err = Trigger(t.Context(), w.store, job, []string{"GB"}, "to try")
				must.Do(t, err)
			} else {
				after(time.Hour)
			}
			after(10 * time.Second)
			document := must.Get(w.store.Job(t.Context(), job.Name))(t)
			var s state
			if err := json.Unmarshal(document.Text, &s); err != nil || len(s.Active) != 1 {
				t.Fatalf("state %s, %v", document.Text, err)
			}
			s.Active[0].Cancel = &Cancel{By: "ann@web1", Note: "too much"} // nobody tells the daemon
			text := must.Get(json.Marshal(s))(t)
			if swapped, err := w.store.SwapJob(t.Context(), driver.JobSwap{Job: job.Name, Version: document.Version, Text: text}); err != nil || !swapped {
				t.Fatal(swapped, err)
			}
			stop()
			w.logged("pass cancelled: no run was started", "by=ann@web1")
			if s := w.state(); len(s.Active)+len(s.Waiting)+len(s.Requests) != 0 {
				t.Errorf("state %+v", s)
			}
			records := must.Get(History(t.Context(), w.store, job.Name, time.Time{}, time.Time{}, 9))(t)
			must.Equal(t, len(records), 1)
			record := records[0]
			if record.Outcome != Skipped || record.Reason != ReasonCancelled || record.Request != request.ID || len(record.Runs) == 0 {
				t.Errorf("recorded %+v", record)
			}
			for _, run := range record.Runs {
				if run.Outcome != Skipped || run.Reason != ReasonCancelled || run.Error != "cancelled by ann@web1: too much" {
					t.Errorf("run %+v", run)
				}
			}
		})
	}
}

// A pass that has started anything is over when its daemon stops: its
// tick is not run again.
func TestAPassThatWasStartedIsNotGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion})
		w.options.Transport = direct{slow(10*time.Second, w.sandbox)}
		w.follow(false, 3*time.Hour+5*time.Second)
		if s := w.state(); len(s.Active) != 0 || len(s.Waiting) != 0 {
			t.Errorf("state %+v", s)
		}
		check.EqualSlices(t, w.history(), []string{"3h0m0s drained stop"}, "history")
	})
}
