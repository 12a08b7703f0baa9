package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// commandWorld has one job, which runs a shell's script in its first argument.
func commandWorld(t *testing.T, keys, script string) *world {
	t.Helper()
	w := newWorld(t, setup{more: fmt.Sprintf("[job.script]\nbudget = \"youtube/key1\"\nschedule = \"@daily\"\n%s\ncommand = [\"sh\", \"-c\", %q, \"{job}\", \"{region}\"]\n", keys, script)})
	w.list = w.list[1:]
	return w
}

// onlyRun runs one pass that has one run.
func (w *world) onlyRun() Run {
	w.t.Helper()
	p := w.once()
	must.Equal(w.t, len(p.Runs), 1, "runs", p.Runs)
	return p.Runs[0]
}

func TestCommandEnds(t *testing.T) {
	for script, want := range map[string]Run{
		"exit 0":                 {Outcome: Succeeded},
		"echo trouble >&2":       {Outcome: Succeeded},
		"exit 75":                {Outcome: Exhausted, Reason: "exit 75"},
		"exit 3":                 {Outcome: Failed, Reason: "exit 3", Error: "the command ended with exit code 3"},
		"kill -9 $$":             {Outcome: Failed, Reason: "signal killed", Error: "the command was ended by signal killed"},
		"test -t 0 || read line": {Outcome: Failed, Reason: "exit 1", Error: "the command ended with exit code 1"}, // nothing to read
	} {
		w := commandWorld(t, "", script)
		got := w.onlyRun()
		if got.Outcome != want.Outcome || got.Reason != want.Reason || got.Error != want.Error {
			t.Errorf("%s: %+v, want %+v", script, got, want)
		}
	}
}

// A program that is not there fails its run, not the pass's other regions.
func TestCommandMissing(t *testing.T) {
	w := commandWorld(t, `regions = ["US", "GB"]`, "")
	w.list[0].Command = []string{"./not-there"}
	p := w.once()
	for _, run := range p.Runs {
		if run.Outcome != Failed || run.Reason != ReasonCommand || !strings.Contains(run.Error, "not-there") {
			t.Errorf("%+v, want a failed start", run)
		}
	}
}

// A command is started with just what is said: arguments that no shell has seen,
// our environment and its own variables, the configuration's folder, no input.
func TestCommandIsTold(t *testing.T) {
	t.Setenv("QUOTACTL_REGION", "of the daemon")
	w := programWorld(t, `regions = ["US"]`, "tell", "told", "{region}", "$HOME; rm -rf {region} *", "`id` {job} {run}", "{tick}", "{}", "a  b\nc", "")
	w.options.StoreURL = "sqlite:elsewhere.db"
	p := w.once()
	if p.Outcome != Succeeded {
		t.Fatalf("%+v\n%s", p, w.log)
	}
	text := readFile(t, filepath.Join(w.dir, "told"))
	var got told
	must.Do(t, json.Unmarshal([]byte(text), &got))
	tick := p.Tick.UTC().Format(TickFormat)
	run := "script/" + tick + "/US"
	check.EqualSlices(t, got.Args, []string{"US", "$HOME; rm -rf US *", "`id` script " + run, tick, "{}", "a  b\nc", ""}, "arguments")
	here := must.Get(os.Getwd())(t)
	want := map[string]string{}
	for _, variable := range append(os.Environ(),
		"PWD="+w.dir, "QUOTACTL_CONFIG="+filepath.Join(w.dir, "costs.toml"), "QUOTACTL_BUDGET=youtube/key1", "QUOTACTL_JOB=script",
		"QUOTACTL_REGION=US", "QUOTACTL_RUN="+run, "QUOTACTL_TICK="+tick,
		"QUOTACTL_FENCE="+strconv.FormatInt(w.state().Fence, 10), "QUOTACTL_STORE=sqlite:"+filepath.Join(here, "elsewhere.db")) {
		name, value, _ := strings.Cut(variable, "=")
		want[name] = value
	}
	var list []string
	for name, value := range want {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	slices.Sort(got.Env)
	check.EqualSlices(t, got.Env, list, "environment")
	if dir, err := filepath.EvalSymlinks(w.dir); err != nil || got.Dir != dir && got.Dir != w.dir || got.Input != "" {
		t.Errorf("in %q with input %q, want %q with none; %v", got.Dir, got.Input, dir, err)
	}
}

// The URL of a store on the network is handed on unchanged, and none where the daemon has
// none.
func TestCommandStore(t *testing.T) {
	for url, want := range map[string]string{"redis://h:1/2": "QUOTACTL_STORE=redis://h:1/2", "sqlite:/q.db": "QUOTACTL_STORE=sqlite:/q.db", "": ""} {
		w := commandWorld(t, "", "true")
		w.options.StoreURL = url
		list := must.Get((&run{options: &w.options, job: w.list[0], record: &Run{}, held: &heldClaim{}}).environ(w.dir, ""))(t)
		got := ""
		if last := list[len(list)-1]; strings.HasPrefix(last, "QUOTACTL_STORE=") {
			got = last
		}
		check.Equal(t, got, want, url)
	}
}

// Where the daemon decides charges over HTTP is handed on.
func TestCommandURL(t *testing.T) {
	for _, url := range []string{"http://127.0.0.1:9090", ""} {
		w := commandWorld(t, "", "true")
		w.options.DecisionsURL = url
		list := must.Get((&run{options: &w.options, job: w.list[0], record: &Run{}, held: &heldClaim{}}).environ(w.dir, ""))(t)
		check.Equal(t, slices.Contains(list, "QUOTACTL_URL="+url), url != "", url, list)
	}
}

// After exit 75 no further region is started.
func TestCommandExhausted(t *testing.T) {
	w := commandWorld(t, `regions = ["US", "GB", "DE"]`, `test "$1" = US || exit 75`)
	check.EqualSlices(t, outcomes(w.once()), []string{"US succeeded", "GB exhausted exit 75", "DE skipped exhausted"}, "outcomes")
}

// What a command charged under its run's label is the run's.
func TestCommandUnits(t *testing.T) {
	w := commandWorld(t, `regions = ["US"]`, "true")
	tick := w.once().Tick.UTC()
	label := w.list[0].partLabel(tick, 1, "US")
	b := w.options.Budgets["youtube/key1"]
	units := int64(7)
	for _, run := range []string{label, label, label + "x"} {
		must.Get(b.Charge(context.Background(), budget.Call{Operation: "videos.list", Units: &units, Labels: budget.Labels{Run: run}}))(t)
	}
	r := &run{label: label, budget: b, hard: t.Context(), log: w.options.Log, record: &Run{}}
	r.spentSince(time.Now().Add(-time.Second), false)
	check.Equal(t, fmt.Sprint(r.record.Units, r.record.Calls, r.record.Spent), "14 2 [{videos.list 14 2}]", "the run spent")
	r.label = "another"
	r.spentSince(time.Now().Add(-time.Second), false)
	check.Equal(t, fmt.Sprint(r.record.Units, r.record.Calls, r.record.Spent != nil), "0 0 true", "a run without charges spent")
}

// Where the ledger may have given up what a command spent, its sum by operation is not
// known: its window is over, or it is coarse and may have been merged.
func TestCommandUnitsForgotten(t *testing.T) {
	for precision, known := range map[time.Duration]time.Duration{0: 24 * time.Hour, time.Minute: 59 * time.Minute} {
		inBubble(t, precision.String(), func(t *testing.T) {
			w := commandWorld(t, "", "true")
			spec := w.options.Budgets["youtube/key1"].Spec()
			spec.Limits = slices.Clone(spec.Limits)
			spec.Limits[0].Window.Precision = precision.Microseconds()
			b := must.Get(budget.New(w.store, spec))(t)
			r := &run{label: "run", budget: b, hard: t.Context(), log: w.options.Log, record: &Run{}}
			began := time.Now()
			must.Get(b.Charge(t.Context(), budget.Call{Operation: "videos.list", Labels: budget.Labels{Run: "run"}}))(t)
			after(known - time.Microsecond)
			r.spentSince(began, false)
			check.Equal(t, fmt.Sprint(r.record.Units, r.record.Spent), "1 [{videos.list 1 1}]", "in time")
			after(2 * time.Microsecond)
			r.spentSince(began, false)
			check.Equal(t, r.record.Spent == nil, true, "too late: unknown")
		})
	}
}

// Commands do not inherit the socket on which the daemon reports its state, nor the
// checkpoint of the run that the daemon itself is in.
func TestWhatIsTheDaemonsAlone(t *testing.T) {
	for _, name := range []string{"NOTIFY_SOCKET", "QUOTACTL_CHECKPOINT"} {
		t.Setenv(name, "/of/the/daemon")
		check.Equal(t, commandWorld(t, "", `test -z "${`+name+`+set}"`).onlyRun().Outcome, Succeeded, "it finds", name)
	}
}
