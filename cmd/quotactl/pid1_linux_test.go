package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/quotactl/quotactl/internal/daemon"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/terminaltest"
)

// programs are what the tests may start by name: quotactl, and a program that replaces a
// first process where no process namespace may be made. It gets the orphans of all that it
// has started, and supervises as a first process does.
func programs() map[string]func() {
	return map[string]func(){"quotactl": main, "quotactl-then": mainThen, "quotactl-first": func() {
		path, err := exec.LookPath("quotactl")
		if err == nil {
			err = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
		}
		if err != nil {
			panic(err)
		}
		os.Exit(daemon.Supervise(path, append([]string{path}, os.Args[1:]...), os.Stderr))
	}}
}

// namespace has a process be the first of a process namespace of its own.
func namespace() *syscall.SysProcAttr {
	attributes := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if os.Geteuid() != 0 {
		attributes.Cloneflags |= syscall.CLONE_NEWUSER
		attributes.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
		attributes.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
	}
	return attributes
}

// firstProcesses calls do with each way of being a first process that there is on
// this machine. start makes a program, before its start, that is one.
func firstProcesses(t *testing.T, do func(t *testing.T, start func(args ...string) *program)) {
	probe := exec.CommandContext(t.Context(), "quotactl", "version")
	probe.SysProcAttr = namespace()
	if err := probe.Run(); err != nil {
		t.Logf("no process namespace may be made here (%v): a subreaper stands in for it", err)
	} else {
		t.Run("namespace", func(t *testing.T) {
			do(t, func(args ...string) *program {
				p := newProgram(t, "https://upstream.invalid", args...)
				p.SysProcAttr = namespace()
				return p
			})
		})
	}
	t.Run("subreaper", func(t *testing.T) {
		do(t, func(args ...string) *program {
			p := newProgram(t, "https://upstream.invalid", args...)
			var err error
			if p.Path, err = exec.LookPath("quotactl-first"); err != nil {
				t.Fatal(err)
			}
			p.Args[0] = p.Path
			p.Cancel = func() error { // a namespace's end would be the end of all in it
				for program := range children(t, p.Process.Pid) {
					_ = syscall.Kill(program, syscall.SIGKILL) // or it has ended
				}
				return p.Process.Kill()
			}
			return p
		})
	})
}

// children are the states of a process's children by their numbers: Z is a zombie.
func children(t *testing.T, parent int) map[int]string {
	t.Helper()
	found := must.Get(filepath.Glob("/proc/[0-9]*/stat"))(t)
	states := map[int]string{}
	for _, path := range found {
		text, err := os.ReadFile(path)
		if err != nil { // it has ended meanwhile
			continue
		}
		// "pid (name) state ppid …"; the name may hold anything.
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			pid := must.Get(strconv.Atoi(filepath.Base(filepath.Dir(path))))(t)
			states[pid] = fields[0]
		}
	}
	return states
}

// orphaning is a job whose command leaves three processes behind, in sessions of
// their own, which read from a named pipe until somebody has written to it.
const orphaning = `
[upstream.shop.costs]
"get" = 1
[upstream.shop.limit.daily]
limit  = 100
window = "24h"
[upstream.shop.credential.main]
[job.orphaning]
budget   = "shop/main"
schedule = "0 0 1 1 *"
command  = ["sh", "-c", "for n in 1 2 3; do (setsid sh -c 'read line <gate' >/dev/null 2>&1 &); done"]
`

// The first process gets the orphans of commands, and reaps them; the program, its
// child, goes on waiting for its commands by name, drains at a SIGTERM and leaves
// its exit code.
func TestTheFirstProcessReapsOrphans(t *testing.T) {
	firstProcesses(t, func(t *testing.T, start func(args ...string) *program) {
		p := start("run", "--now")
		must.Do(t, os.WriteFile(filepath.Join(p.Dir, "costs.toml"), []byte(orphaning), 0o600))
		gate := filepath.Join(p.Dir, "gate")
		must.Do(t, unix.Mkfifo(gate, 0o600))
		p.start()
		p.logged(`msg="run ended" job=orphaning .* outcome=succeeded`)
		first := p.Process.Pid
		becomes(t, "three orphans and the program are children of the first process", func() bool { return len(children(t, first)) == 4 })
		becomes(t, "the program alone is left", func() bool {
			// The end of the file ends those that read; some may come to that only now.
			if open, err := os.OpenFile(gate, os.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
				_ = open.Close()
			}
			return len(children(t, first)) == 1
		})
		for pid, state := range children(t, first) {
			if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err != nil || state == "Z" || !strings.Contains(string(name), "run\x00--now") {
				t.Errorf("what is left is %q, state %s, %v", name, state, err)
			}
		}
		p.signal(syscall.SIGTERM)
		p.logged("stop signal received")
		p.exits(exitDone)
		p.logged(`msg="pass ended".* outcome=succeeded`)
	})
}

// Signals and the manager's socket reach the program.
func TestTheFirstProcessHandsOn(t *testing.T) {
	firstProcesses(t, func(t *testing.T, start func(args ...string) *program) {
		m := newManager(t)
		p := start("run")
		p.Env = append(p.Env, "NOTIFY_SOCKET="+m.path)
		p.start()
		m.hears("READY=1")
		p.signal(syscall.SIGHUP)
		m.hears("RELOADING=1")
		p.logged("was reloaded")
		p.signal(os.Interrupt)
		m.hears("STOPPING=1")
		p.exits(exitDone)
	})
}

// It ends as the program does: with its code, or as a shell tells a signal.
func TestTheFirstProcessEndsAsTheProgram(t *testing.T) {
	firstProcesses(t, func(t *testing.T, start func(args ...string) *program) {
		p := start("version")
		p.start()
		p.exits(exitDone)
		if p.out.Len() == 0 {
			t.Error("the program said nothing")
		}
		p = start("run", "--once", "no-such-job")
		p.start()
		p.exits(exitUsage)
		p.logged(`unknown job "no-such-job"`)

		p = start("run")
		p.start()
		p.logged("msg=job job=trending")
		for program := range children(t, p.Process.Pid) {
			must.Do(t, syscall.Kill(program, syscall.SIGKILL))
		}
		p.exits(128 + int(syscall.SIGKILL))
	})
}

// The first process reports a command that it cannot start.
func TestTheFirstProcessSaysWhatItCannotStart(t *testing.T) {
	var stderr bytes.Buffer
	if code := daemon.Supervise(filepath.Join(t.TempDir(), "none"), []string{"none"}, &stderr); code != exitFailed || !strings.Contains(stderr.String(), "no such file") {
		t.Errorf("exit code %d: %s", code, &stderr)
	}
}

// Ctrl-C in the terminal of a container is one signal, which drains, and not two,
// which would stop at once.
func TestTheFirstProcessHasOneCtrlC(t *testing.T) {
	firstProcesses(t, func(t *testing.T, start func(args ...string) *program) {
		upstream, address := newGate(t)
		p := start("run", "--now")
		must.Do(t, os.WriteFile(filepath.Join(p.Dir, "costs.toml"), fmt.Appendf(nil, daemonConfig, address), 0o600))
		master, slave := terminaltest.New(t)
		p.Stdin = slave
		if p.SysProcAttr == nil {
			p.SysProcAttr = &syscall.SysProcAttr{}
		}
		p.SysProcAttr.Setsid, p.SysProcAttr.Setctty = true, true
		p.start()
		<-upstream.asked // of both regions
		<-upstream.asked
		becomes(t, "the program's own group is in the foreground", func() bool {
			group, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPGRP)
			own, lost := unix.Getpgid(group)
			return err == nil && lost == nil && own == group && children(t, p.Process.Pid)[group] != ""
		})
		must.Get(master.WriteString("\x03"))(t)
		p.logged("stop signal received")
		close(upstream.open)
		p.exits(exitDone)
		p.logged(`outcome=drained reason=stop`)
	})
}
