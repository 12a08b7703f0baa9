package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/proc"
	"github.com/quotactl/quotactl/internal/redistest"
)

// reportSignals is a shell's program that says which signals it gets, and ends at a TERM.
const reportSignals = `for s in HUP INT QUIT USR1 USR2 ALRM WINCH CONT; do trap "echo got $s >&2" $s; done
trap 'echo got TERM >&2; exit 9' TERM
echo pid $$ >&2
while :; do sleep 0.02; done`

// startExec starts a command by exec, in a folder with a configuration.
func startExec(t *testing.T, config string, prepare func(*program), args ...string) *program {
	t.Helper()
	p := newProgram(t, "https://upstream.invalid", append([]string{"exec", "shop/main"}, args...)...)
	must.Do(t, os.WriteFile(filepath.Join(p.Dir, "costs.toml"), []byte(config), 0o600))
	prepare(p)
	p.start()
	return p
}

// A signal that is sent to exec, to it alone or to its group as a terminal does,
// reaches the command, and once.
func TestExecHandsSignalsOn(t *testing.T) {
	t.Parallel()
	p := startExec(t, shopConfig, func(p *program) {
		p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	}, "orders.get", "--", "sh", "-c", reportSignals)
	p.logged(`pid \d+\n`)
	said := func() string {
		text := must.Get(os.ReadFile(p.log))(t)
		return string(text)
	}
	want := fmt.Sprintf("pid %d\n", p.Process.Pid)
	for name, s := range map[string]syscall.Signal{
		"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2,
		"ALRM": syscall.SIGALRM, "WINCH": syscall.SIGWINCH, "CONT": syscall.SIGCONT,
	} {
		p.signal(s)
		want += "got " + name + "\n"
		p.logged("(?s)^" + regexp.QuoteMeta(want))
	}
	must.Do(t, syscall.Kill(-p.Process.Pid, syscall.SIGINT))
	want += "got INT\n"
	p.logged("(?s)" + regexp.QuoteMeta(want))
	p.signal(syscall.SIGTERM)
	p.exits(9)
	if want += "got TERM\n"; said() != want || p.out.Len() > 0 {
		t.Errorf("it said %q and on stdout %q, want %q", said(), p.out.String(), want)
	}
}

// A signal that comes just as the charge is answered is not lost: the command is not
// started. Not parallel: it is the test's process that gets the signals.
func TestExecLosesNoSignal(t *testing.T) {
	arrived := make(chan os.Signal, 1)
	signal.Notify(arrived, syscall.SIGHUP)
	defer signal.Stop(arrived)
	for i := range effort.Of(500, 1000, 5000) {
		ended, err := proc.Interruptibly(t.Context(), func(context.Context) error {
			if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
				return err
			}
			<-arrived
			return nil
		})
		if err != nil || !errors.Is(ended, context.Canceled) {
			t.Fatalf("the signal of time %d: %v, %v", i, ended, err)
		}
	}
	if ended, err := proc.Interruptibly(t.Context(), func(context.Context) error { return nil }); ended != nil || err != nil {
		t.Errorf("no signal came: %v, %v", ended, err)
	}
}

// decisions counts how often a server was asked to decide.
func decisions(t *testing.T, server *redistest.Server) func() int {
	client := server.Client()
	return func() int {
		info := must.Get(client.Info(t.Context(), "commandstats").Result())(t)
		calls := 0
		for _, found := range regexp.MustCompile(`cmdstat_(?:eval|evalsha|fcall):calls=(\d+)`).FindAllStringSubmatch(info, -1) {
			n := must.Get(strconv.Atoi(found[1]))(t)
			calls += n
		}
		return calls
	}
}

// slowly is a budget of two calls, each of which comes back in half an hour. Its store
// is there, though the machine may be busy.
func slowly(server *redistest.Server) string {
	return strings.NewReplacer(`"sqlite:q.db"`, fmt.Sprintf("%q", server.URL(0)), `window = "24h"`, `refill = "2/h"`).Replace(shopConfig)
}

// A signal ends what has not started yet: the command is not run, and nothing is
// charged.
func TestExecInterruptedWhileItWaits(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	config := slowly(server)
	spent := startExec(t, config, func(*program) {}, "orders.get", "--units", "2", "--", "true")
	spent.exits(exitDone)
	decided := decisions(t, server)
	if decided() == 0 {
		t.Fatal("the store was never asked")
	}
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		before := decided()
		p := startExec(t, config, func(*program) {}, "orders.get", "--wait", "1h", "--", "echo", "started")
		redistest.Await(t, "the store to have refused it", func() bool { return decided() > before })
		p.signal(s)
		p.exits(exitInterrupted)
		if p.out.Len() > 0 {
			t.Errorf("%s: it said %q", s, p.out.String())
		}
	}
	p := startExec(t, config, func(*program) {}, "orders.get", "--", "true")
	p.exits(exitExhausted)
	p.logged("has 0 left")
}
