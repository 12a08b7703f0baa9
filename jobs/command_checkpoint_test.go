package jobs

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/checkpoint"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs/client"
)

// checkpointed is a command job of one region whose checkpoints stand for an hour. It
// notes what it finds in the file, one run a line.
func checkpointed(t *testing.T, script string) *world {
	t.Helper()
	return commandWorld(t, "checkpoint = \"1h\"\n"+oneRegion, `if test -e "$QUOTACTL_CHECKPOINT"; then cat "$QUOTACTL_CHECKPOINT"; else printf none; fi >>found; echo >>found; `+script)
}

// found is what the runs have found, one a line.
func (w *world) found() []string {
	w.t.Helper()
	text := readFile(w.t, filepath.Join(w.dir, "found"))
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// kept is what the store has for the next run; empty for nothing.
func (w *world) kept() string {
	w.t.Helper()
	text, err := w.store.JobValue(context.Background(), "script", "checkpoint/US")
	must.Do(w.t, err)
	if text == nil {
		return ""
	}
	value, err := checkpoint.Read(text)
	if err != nil || value.Fetch != nil {
		w.t.Fatalf("%s: %v", text, err)
	}
	return string(value.Data)
}

// What the file holds when the command ends, the next run finds in it, however the
// command ended.
func TestACommandsCheckpoint(t *testing.T) {
	w := checkpointed(t, `n=$(wc -l <found); test $n -lt 4 && printf "page %s" $n >"$QUOTACTL_CHECKPOINT"; test $n -eq 4 && rm "$QUOTACTL_CHECKPOINT"; case $n in 1) exit 1;; 2) exit 75;; 3) kill -9 $$;; esac; exit 0`)
	want := []Outcome{Failed, Exhausted, Failed, Succeeded, Succeeded}
	for i, outcome := range want {
		if run := w.onlyRun(); run.Outcome != outcome || run.Resumed != (i > 0 && i < 4) {
			t.Errorf("run %d: %+v, want %s", i, run, outcome)
		}
	}
	check.EqualSlices(t, w.found(), []string{"none", "page 1", "page 2", "page 3", "none"}, "found")
	check.Equal(t, w.kept(), "", "kept")
	w.logged("level=INFO msg=resumed", "bytes=6", "region=US")
}

// Removed or emptied, nothing is kept any more.
func TestACommandForgetsItsCheckpoint(t *testing.T) {
	for _, forget := range []string{`rm "$QUOTACTL_CHECKPOINT"`, `: >"$QUOTACTL_CHECKPOINT"`} {
		w := checkpointed(t, `if test -e "$QUOTACTL_CHECKPOINT"; then `+forget+`; else printf x >"$QUOTACTL_CHECKPOINT"; fi`)
		for range 3 {
			w.onlyRun()
		}
		check.EqualSlices(t, w.found(), []string{"none", "x", "none"}, "found")
	}
}

// A file that a run leaves as it is keeps its span: no progress was made.
func TestAnUnchangedCheckpointExpires(t *testing.T) {
	w := checkpointed(t, `test -e "$QUOTACTL_CHECKPOINT" || printf x >"$QUOTACTL_CHECKPOINT"`)
	now := time.Now()
	w.options.Now = func() time.Time { return now }
	w.store = memstore.New(func() int64 { return now.UnixMicro() })
	w.options.State = w.store
	w.onlyRun()
	now = now.Add(time.Hour - time.Microsecond)
	w.onlyRun()
	now = now.Add(time.Microsecond)
	w.onlyRun()
	check.EqualSlices(t, w.found(), []string{"none", "x", "none"}, "found")
	w.logged("level=INFO", "the checkpoint has expired")
}

// Each try of a run finds what the one before has left.
func TestACommandThatIsTriedAgainFindsItsCheckpoint(t *testing.T) {
	w := checkpointed(t, `printf x >>"$QUOTACTL_CHECKPOINT"; exit 1`)
	w.list[0].Retries, w.list[0].RetryWait = 2, time.Millisecond
	check.Equal(t, w.onlyRun().Attempts, 3)
	check.EqualSlices(t, w.found(), []string{"none", "x", "xx"}, "found")
	check.Equal(t, w.kept(), "xxx", "kept")
}

// Anything but a file, or a file that is too large, is not kept; the earlier checkpoint is.
// Nothing is read through a link, and a pipe does not hang the run.
func TestACheckpointThatIsNoFile(t *testing.T) {
	for script, says := range map[string]string{
		`rm "$f"; mkfifo "$f"`:                      "is not a regular file",
		`rm "$f"; mkdir "$f"`:                       "is not a regular file",
		`rm "$f"; ln -s /etc/hostname "$f"`:         "read what QUOTACTL_CHECKPOINT names",
		`head -c 65537 /dev/zero >"$f"`:             "more than 65536 bytes",
		`rm -r "${f%/*}"; printf x >"${f%/*}" || :`: "read what QUOTACTL_CHECKPOINT names",
	} {
		w := checkpointed(t, `f=$QUOTACTL_CHECKPOINT; if test -e "$f"; then `+script+`; else printf first >"$f"; fi`)
		w.onlyRun()
		if run := w.onlyRun(); run.Outcome != Succeeded || w.kept() != "first" {
			t.Errorf("%s: %+v, %q is kept", script, run, w.kept())
		}
		w.logged("level=WARN", "the command's checkpoint was not stored; the previous one stays", says)
	}
	w := checkpointed(t, `head -c 65536 /dev/zero | tr '\0' x >"$QUOTACTL_CHECKPOINT"`)
	w.onlyRun()
	check.Equal(t, len(w.kept()), 65536, "bytes are kept")
}

// The file is its user's alone, in a folder that goes with the run; without the key
// there is none.
func TestWhereACheckpointIs(t *testing.T) {
	w := checkpointed(t, `printf x >"$QUOTACTL_CHECKPOINT"; ls -ld "${QUOTACTL_CHECKPOINT%/*}" | cut -c1-10 >mode; echo "$QUOTACTL_CHECKPOINT" >path`)
	w.onlyRun()
	mode := must.Get(os.ReadFile(filepath.Join(w.dir, "mode")))(t)
	check.Equal(t, string(mode), "drwx------\n", "the folder is")
	path := readFile(t, filepath.Join(w.dir, "path"))
	check.Is(t, check.Err(os.Stat(filepath.Dir(strings.TrimSpace(path)))), os.ErrNotExist, path, "is there still")
	w = commandWorld(t, "", `test -z "${QUOTACTL_CHECKPOINT+x}"`)
	check.Equal(t, w.onlyRun().Outcome, Succeeded, "without checkpoint there is a file")
}

// A heartbeat keeps what the file holds, and takes an empty one for one that is just
// being written.
func TestAHeartbeatKeepsACheckpoint(t *testing.T) {
	w := programWorld(t, "checkpoint = \"1h\"\n"+oneRegion, "call", "there")
	w.options.Heartbeat = 10 * time.Millisecond
	w.list[0].Command = []string{"sh", "-c", `echo "$QUOTACTL_CHECKPOINT" >path; printf one >"$QUOTACTL_CHECKPOINT"; exec "$0" "$@"`, w.list[0].Command[0], "call", "there"}
	listener := w.listen()
	ended := w.begin(t.Context(), nil)
	c := w.caller(listener)
	until := func(what string) {
		t.Helper()
		for deadline := time.Now().Add(patience); w.kept() != what; <-time.After(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%q is kept, want %q", w.kept(), what)
			}
		}
	}
	until("one")
	text := readFile(t, filepath.Join(w.dir, "path"))
	path := strings.TrimSpace(text)
	beats := w.state().Active[0].Until
	must.Do(t, os.WriteFile(path, nil, 0o600))
	for n := 0; n < 3; { // three heartbeats pass
		if until := w.state().Active[0].Until; until != beats {
			beats, n = until, n+1
		}
		<-time.After(time.Millisecond)
	}
	check.Equal(t, w.kept(), "one", "kept while the file is empty")
	must.Do(t, os.WriteFile(path, []byte("two"), 0o600))
	until("two")
	c.letGo()
	if p := result(t, ended); p.Outcome != Succeeded || w.kept() != "two" {
		t.Errorf("%+v, %q is kept", p, w.kept())
	}
}

// A pass that is declared dead keeps nothing any more.
func TestACommandOfALostPassKeepsNothing(t *testing.T) {
	w := programWorld(t, "checkpoint = \"1h\"\n"+oneRegion, "call", "there")
	w.list[0].Command = []string{"sh", "-c", `"$0" "$@"; printf x >"$QUOTACTL_CHECKPOINT"`, w.list[0].Command[0], "call", "there"}
	listener := w.listen()
	r := w.runner()
	ended := make(chan Pass, 1)
	go func() { ended <- r.Once(t.Context(), nil)[0] }()
	c := w.caller(listener)
	w.takesForDead(r)
	c.letGo()
	if run := result(t, ended).Runs[0]; run.Outcome != Lost || run.Reason != ReasonFenced || w.kept() != "" {
		t.Errorf("%+v, %q is kept", run, w.kept())
	}
}

// A store that does not say what was kept has the command begin anew and keeps
// nothing of it; one that does not take what is kept does not fail the run.
func TestACommandsCheckpointWithoutAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := checkpointed(t, "")
		must.Do(t, (&client.Checkpoint{Store: w.store, Job: "script", Region: "US", For: time.Hour}).Save(t.Context(), []byte("x")))
		for name, state := range map[string]State{"read": noValues{w.store}, "written": &events{State: w.store, fail: true}} {
			w.options.State = state
			r := w.runner()
			p := &pass{runner: r, job: w.list[0], soft: t.Context(), hard: t.Context(), log: w.options.Log}
			p.held = heldClaim{claim: w.claimed(r, midnight, newHolder()), docs: r.docs, job: p.job, log: p.log}
			run := p.newRun(0, &Run{Region: "US"})
			file, end := run.keepFile(t.Context())
			if end != nil || run.record.Resumed != (name == "written") {
				t.Fatalf("%s: %+v, %+v", name, end, run.record)
			}
			must.Do(t, os.WriteFile(file.path(), []byte("y"), 0o600))
			file.beat(t.Context())
			if end := file.ended(); end != nil || w.kept() != "x" {
				t.Errorf("%s: %+v, %q is kept", name, end, w.kept())
			}
			file.done()
		}
		w.logged("level=WARN", "the checkpoint could not be read", "connection refused")
		w.logged("level=WARN", "the command's checkpoint was not stored; the previous one stays", "connection refused")
	})
}

// What a program keeps by client.Checkpoint is the same: a command whose file stays
// as it is leaves that alone.
func TestACommandsCheckpointIsThatOfItsProgram(t *testing.T) {
	w := checkpointed(t, `exit 0`)
	c := client.Checkpoint{Store: w.store, Job: "script", Region: "US", For: time.Hour}
	must.Do(t, c.Save(t.Context(), []byte("by hand")))
	w.onlyRun()
	if data, err := c.Load(t.Context()); err != nil || !bytes.Equal(data, []byte("by hand")) {
		t.Errorf("%q, %v", data, err)
	}
	must.Do(t, c.Clear(t.Context()))
	w.onlyRun()
	check.EqualSlices(t, w.found(), []string{"by hand", "none"}, "found")
	check.Equal(t, w.kept(), "", "kept")
}

// While a pass is under way, only a program that has its number changes anything; once
// the pass is declared dead, nobody with that number.
func TestACheckpointGoesByTheFence(t *testing.T) {
	w := checkpointed(t, `exit 0`)
	r := w.runner()
	claimed := w.claimed(r, midnight, newHolder())
	if passes, err := budget.PassesOf(driver.JobDocument{Text: w.document()}); err != nil || len(passes.Active) != 1 || passes.Active[0] != claimed.Fence {
		t.Fatalf("%v are active, %v; want %d", passes.Active, err, claimed.Fence)
	}
	ours := client.Checkpoint{Store: w.store, Job: "script", Region: "US", For: time.Hour, Fence: claimed.Fence}
	alone, zombie := ours, ours
	alone.Fence, zombie.Fence = 0, claimed.Fence-1
	for what, want := range map[*client.Checkpoint]error{&ours: nil, &alone: budget.ErrConflict, &zombie: budget.ErrFenced} {
		for _, err := range []error{what.Save(t.Context(), []byte("x")), what.Clear(t.Context())} {
			if !errors.Is(err, want) || (err == nil) != (want == nil) {
				t.Errorf("fence %d: %v, want %v", what.Fence, err, want)
			}
		}
	}
	must.Do(t, r.docs.change(t.Context(), w.list[0], func(s *state, _ clocks) (edit, error) {
		s.drop(claimed.Holder)
		return edit{}, nil
	}))
	check.Is(t, ours.Save(t.Context(), []byte("x")), budget.ErrFenced, "after the pass")
	check.NoError(t, alone.Save(t.Context(), []byte("x")), "alone")
}

// document is that of the only job, as it is kept.
func (w *world) document() []byte {
	w.t.Helper()
	found, err := w.store.Job(context.Background(), w.list[0].Name)
	must.Do(w.t, err)
	return found.Text
}
