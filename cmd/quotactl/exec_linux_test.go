package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"syscall"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
	"github.com/quotactl/quotactl/internal/terminaltest"
)

// Ctrl-C in a terminal is one signal to the command.
func TestExecHasOneCtrlC(t *testing.T) {
	t.Parallel()
	master, slave := terminaltest.New(t)
	p := startExec(t, shopConfig, func(p *program) {
		p.Stdin = slave
		p.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	}, "orders.get", "--", "sh", "-c", reportSignals)
	p.logged(`^pid \d+\n$`)
	must.Get(master.WriteString("\x03"))(t)
	p.logged(`^pid \d+\ngot INT\n$`)
	p.signal(syscall.SIGTERM)
	p.exits(9)
	p.logged(`^pid \d+\ngot INT\ngot TERM\n$`)
}

// What nohup has ignored stays ignored, while exec waits and in the command.
func TestExecKeepsWhatIsIgnored(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	config, decided := slowly(server), decisions(t, server)
	nohup := func(p *program) {
		p.Path = "/bin/sh"
		p.Args = append([]string{"sh", "-c", `trap "" HUP INT; exec "$0" "$@"`}, p.Args...)
	}
	const both = 1<<(syscall.SIGHUP-1) | 1<<(syscall.SIGINT-1)
	ignored := func(p *program) uint64 {
		status := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Process.Pid)))(t)
		mask := must.Get(strconv.ParseUint(string(regexp.MustCompile(`SigIgn:\t([0-9a-f]+)`).FindSubmatch(status)[1]), 16, 64))(t)
		return mask & both
	}
	p := startExec(t, config, nohup, "orders.get", "--units", "2", "--", "sh", "-c", "trap 'exit 9' TERM; echo pid $$ >&2; while :; do sleep 0.02; done")
	p.logged(`pid \d+\n`)
	check.Equal(t, ignored(p), both, "the command ignores")
	p.signal(syscall.SIGTERM)
	p.exits(9)
	before := decided()
	p = startExec(t, config, nohup, "orders.get", "--wait", "1h", "--", "echo", "started")
	redistest.Await(t, "the store to have refused it", func() bool { return decided() > before })
	check.Equal(t, ignored(p), both, "while it waits it ignores")
	p.signal(syscall.SIGTERM)
	p.exits(exitInterrupted)
}
