package jobs

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/proc"
)

// A fetch run's record has what it logged from info on, as text.
func TestARunKeepsItsLastLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := retried(t, fails(1, answering(503, "", "trouble with "+secretKey)), setup{job: "retries = 1\nretry_wait = \"4s\""})
		w.options.Log = slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelError})) // the log's level is not the record's
		p := w.once()
		check.EqualSlices(t, p.Runs[0].Log, []string{
			`time=2000-01-01T00:00:00.000Z level=WARN msg="failed; trying again" attempt=2 wait=3s reason="status 503" error="page 1: the upstream answered 503 Service Unavailable: trouble with [secret]"`,
			`time=2000-01-01T00:00:03.000Z level=WARN msg="the first page does not say whether there is another: it was taken for the only page" field=nextPageToken`,
		}, "log")
		w.secretless(p)
		if strings.Contains(w.log.String(), "trying again") {
			t.Errorf("below its level is in the log:\n%s", w.log)
		}
	})
}

// A command's has what it printed, with the stream, in order; a line is cut and
// marked, and of many the last are kept.
func TestACommandKeepsItsLastLines(t *testing.T) {
	w := commandWorld(t, "", fmt.Sprintf(`echo out; sleep 0.1; echo "trouble: %s" >&2; sleep 0.1; head -c 3000 /dev/zero | tr '\0' x; exit 3`, secretKey))
	run := w.onlyRun()
	check.EqualSlices(t, run.Log, []string{
		"stdout: out", "stderr: trouble: [secret]",
		"stdout: " + strings.Repeat("x", maxTailLine-len("stdout: ")-len("…(cut, 3000 bytes)")) + "…(cut, 3000 bytes)",
	}, "log")
	w = commandWorld(t, "", "seq 1 100")
	run = w.onlyRun()
	if len(run.Log) != tailLines || run.Log[0] != "stdout: 81" || run.Log[19] != "stdout: 100" {
		t.Errorf("%q, want the last 20 lines", run.Log)
	}
}

// The lines of the record are those of the log too.
func TestACommandsWarningsAreKept(t *testing.T) {
	var run Run
	for timeout, begun := 200*time.Millisecond, false; !begun && timeout < patience; timeout *= 2 {
		w := commandWorld(t, "grace = \"0s\"", "trap '' TERM; : >begun; exec sleep 600")
		w.list[0].Timeout = timeout
		run = w.onlyRun()
		_, err := os.Stat(filepath.Join(w.dir, "begun"))
		begun = err == nil
	}
	if len(run.Log) != 1 || !strings.Contains(run.Log[0], `level=WARN msg="command killed: it, or something it started, had not ended within its grace" grace=0s`) {
		t.Errorf("%q", run.Log)
	}
}

// The record stays small, whatever is printed: 4 KiB a run, and less of each where
// they are many.
func TestTheLastLinesAreBounded(t *testing.T) {
	for regions, most := range map[int]int{1: 4 << 10, 16: 4 << 10, 64: 1 << 10, 1000: 256} {
		log := slog.New(slog.DiscardHandler)
		p := &pass{runner: &Runner{log: log, secrets: &secrets{}}, job: &Job{Name: "j"}, log: log, runs: make([]Run, regions)}
		lines := p.newRunLog(&Run{})
		for i := range 50 {
			lines.output("stdout", fmt.Sprintf("%02d %s", i, strings.Repeat("é", 400)), 803)
		}
		last := lines.tail.lines()
		size := 0
		for _, line := range last {
			size += len(line)
			if !strings.HasPrefix(line, "stdout: ") || strings.ContainsRune(line, '\uFFFD') {
				t.Errorf("%q", line)
			}
		}
		if size > most || size < most/2 || len(last) == 0 || !strings.HasPrefix(last[len(last)-1], "stdout: 49") {
			t.Errorf("%d regions: %d lines of %d bytes, want at most %d", regions, len(last), size, most)
		}
	}
}

// The output of a command is logged up to a bound; the rest is counted, and reported once.
// The last lines are kept all the same.
func TestACommandsOutputIsBounded(t *testing.T) {
	w := commandWorld(t, "retries = 1", fmt.Sprintf(`yes %s | head -n 20; yes | head -n 600; echo "last %s"; exit 1`, strings.Repeat("x", 999), secretKey))
	w.list[0].RetryWait = time.Millisecond
	r := w.runner()
	check.Equal(t, r.maxLogged, 4<<20, "bytes are logged of a run")
	r.maxLogged = 21*999 + 10*leastLogged
	run := r.Once(t.Context(), nil)[0].Runs[0]
	if n := len(run.Log); run.Attempts != 2 || n != tailLines || run.Log[n-1] != "stdout: last [secret]" {
		t.Errorf("%+v", run)
	}
	log := w.log.String()
	if long, short := strings.Count(log, "line=xxx"), strings.Count(log, "line=y"); long != 20 || short != 26 {
		t.Errorf("%d long lines and %d short ones are logged, want 20 and 26", long, short)
	}
	rest := 600 - 26 + 20*999 + 600 + 2*len("last "+secretKey)
	w.logged("level=WARN", "msg=\"the command printed more than is logged for one run\"", fmt.Sprintf("not_logged=%d", rest))
	check.Equal(t, strings.Count(log, "more than is logged"), 1, "said … times")
	if strings.Contains(log, secretKey) {
		t.Error("the secret is in the log")
	}
}

// A heartbeat writes down how far each run has come, with its last lines: what is
// known of it when its daemon is gone.
func TestAHeartbeatTellsHowFarARunHasCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion})
		w.options.Transport = direct{slow(6*time.Second, w.sandbox)}
		time.AfterFunc(16*time.Second, func() {
			record, err := readRecord(w.state().Active[0].Progress)
			if err != nil || len(record.Runs) != 1 {
				t.Errorf("progress %+v, %v", record, err)
				return
			}
			if run := record.Runs[0]; run.Outcome != "" || run.Pages != 2 || run.Units != 2 || run.Calls != 2 || run.Attempts != 1 {
				t.Errorf("progress %+v, want two pages", run)
			}
		})
		w.succeeds()
	})
}

func TestAHeartbeatTellsWhatACommandPrints(t *testing.T) {
	w := programWorld(t, "", "call", "there")
	w.options.Heartbeat = 20 * time.Millisecond
	w.list[0].Command = []string{"sh", "-c", `echo begun; exec "$0" "$@"`, w.list[0].Command[0], "call", "there"}
	listener := w.listen()
	ended := w.begin(t.Context(), nil)
	c := w.caller(listener)
	deadline := time.Now().Add(patience)
	for {
		if s := w.state(); len(s.Active) == 1 && strings.Contains(string(s.Active[0].Progress), "stdout: begun") {
			if !must.Get(readRecord(s.Active[0].Progress))(t).Runs[0].Unknown {
				t.Error("what it has spent is shown as known, while it runs")
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the progress does not tell: %+v", w.state())
		}
		<-time.After(5 * time.Millisecond)
	}
	c.letGo()
	result(t, ended)
}

// Lines go into the log, each with who said it; the last without an end too.
func TestCommandOutput(t *testing.T) {
	w := commandWorld(t, `regions = ["US"]`, fmt.Sprintf(`echo one; printf 'two\033[31m\n' >&2; echo '%s'; printf last`, secretKey))
	must.Equal(t, w.onlyRun().Outcome, Succeeded)
	w.logged("level=INFO", "line=one", "stream=stdout", "job=script", "region=US", "run=script/")
	w.logged("level=INFO", "line=\"two [31m\"", "stream=stderr")
	w.logged("line=[secret]")
	w.logged("line=last")
	if strings.Contains(w.log.String(), secretKey) {
		t.Error("the secret is in the log")
	}
}

// A megabyte without a line's end is one line of the log, of bounded length.
func TestCommandOutputWithoutLines(t *testing.T) {
	w := programWorld(t, "", "print", "1048576", "y")
	must.Equal(t, w.onlyRun().Outcome, Succeeded)
	w.logged("line=\"yyy", "yyy…(cut, 1048576 bytes)")
	if n := len(w.log.String()); n > 2*proc.MaxLine {
		t.Errorf("the log has %d bytes", n)
	}
}

// All secrets of a configuration are known that can be read, and the store's.
func TestKnownSecrets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "password")
	must.Do(t, os.WriteFile(path, []byte("filed\n"), 0o600))
	cfg := &config.Config{Store: config.Store{PasswordFile: path}, Upstreams: []config.Upstream{
		{Credentials: []config.Credential{{Label: "a", SecretEnv: "A"}, {Label: config.AnyCredential, SecretEnv: "B"}}},
		{Credentials: []config.Credential{{Label: "b", SecretEnv: "NONE"}, {Label: "c"}}},
	}}
	env := func(name string) (string, bool) {
		if name == "NONE" {
			return "", false
		}
		return " of " + name, true
	}
	check.EqualSlices(t, KnownSecrets(cfg, env), []string{"filed", "of A", "of B"}, "secrets")
	cfg.Store = config.Store{PasswordEnv: "P"}
	check.EqualSlices(t, KnownSecrets(cfg, env), []string{"of P", "of A", "of B"}, "secrets")
}

// The secret that is hidden is the credential's, as it is kept.
func TestKnownSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	must.Do(t, os.WriteFile(path, []byte(" filed\n"), 0o600))
	env := func(name string) (string, bool) { return " set\n", name == "KEY" }
	for want, credential := range map[string]config.Credential{
		"set": {SecretEnv: "KEY"}, "filed": {SecretFile: path}, "": {SecretFile: path + ".not"},
	} {
		check.Equal(t, KnownSecret(credential, env), want, credential)
	}
}
