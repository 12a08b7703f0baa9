package proc

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// PipeWait is how long [Group.Release] and [Group.Stop] wait for a command's output when
// the command has ended but a process that it started still holds the output.
const PipeWait = 2 * time.Second

// Group is a running command and the processes that it started, as far as they stayed in
// its process group. The caller ends it with Stop, or with Release once the command has
// exited.
type Group struct {
	cmd    *exec.Cmd
	log    *slog.Logger
	output sync.WaitGroup
	pipes  []*os.File // our ends
	exited chan struct{}
	gone   chan struct{}
	reap   func() error // frees the group's number; returns how the command ended
}

// Start starts a command in a process group of its own and passes on its output line by
// line, until [Group.Stop] or [Group.Release] has returned. It calls line with the
// stream's name and as in [ReadLines], from one goroutine per stream. An error means that
// the command was not started.
func Start(cmd *exec.Cmd, log *slog.Logger, line func(stream, kept string, length int)) (*Group, error) {
	g := &Group{cmd: cmd, log: log, exited: make(chan struct{}), gone: make(chan struct{}), reap: sync.OnceValue(cmd.Wait)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	theirs, err := g.readOutput(line)
	if err == nil {
		err = cmd.Start()
	}
	for _, file := range theirs {
		_ = file.Close() // the command has its own copy, or was not started
	}
	if err != nil {
		g.output.Wait()
		g.closePipes()
		return nil, fmt.Errorf("%w; does it exist, is it executable, and does the interpreter in its first line exist?", err)
	}
	log.Debug("command started", "pid", cmd.Process.Pid)
	go g.await()
	return g, nil
}

// readOutput connects the command's output. theirs are the command's ends of the pipes;
// the caller closes them once the command has started, also after an error.
func (g *Group) readOutput(line func(stream, kept string, length int)) (theirs []io.Closer, err error) {
	for _, stream := range []struct {
		name string
		to   *io.Writer
	}{{"stdout", &g.cmd.Stdout}, {"stderr", &g.cmd.Stderr}} {
		read, write, err := os.Pipe()
		if err != nil {
			return theirs, err
		}
		g.pipes, theirs = append(g.pipes, read), append(theirs, write)
		*stream.to = write
		g.output.Go(func() {
			if err := ReadLines(read, func(kept string, length int) { line(stream.name, kept, length) }); err != nil {
				g.log.Debug("output ended", "stream", stream.name, "error", err)
			}
		})
	}
	return theirs, nil
}

// await notes the command's end. Where the system allows it, it does not reap the command
// yet: until then no other process, and no other group, can have its number.
func (g *Group) await() {
	if AwaitExit(g.cmd.Process.Pid) != nil {
		_ = g.reap() // Wait returns the error
	}
	close(g.exited)
	g.output.Wait()
	close(g.gone)
}

// Exited is closed when the command itself has ended.
func (g *Group) Exited() <-chan struct{} { return g.exited }

// Wait frees the group's number once the command has ended, and returns how it ended, as
// in [exec.Cmd.Wait].
func (g *Group) Wait() error { return g.reap() }

// Kill kills the whole group. While a process of the group is left, or Wait has not been
// called, no other group has its number.
func (g *Group) Kill() { g.signal(syscall.SIGKILL) }

// Stop asks the group to end. After the grace, or at once when cut is closed, it kills
// what is left: the command, the processes it started, or both. It returns when the
// command has ended.
func (g *Group) Stop(grace time.Duration, cut <-chan struct{}) {
	defer g.closePipes()
	g.log.Debug("command asked to end")
	g.signal(syscall.SIGTERM)
	select {
	case <-g.gone:
	case <-time.After(grace):
		g.log.Warn("command killed: it, or something it started, had not ended within its grace", "grace", grace)
	case <-cut:
		g.log.Warn("command killed: it, or something it started, had not ended when the pass was cut")
	}
	g.Kill()
	<-g.exited
	g.lastLines()
}

// Release waits until the output of a command that has exited has ended. If a process
// still holds the output after [PipeWait], or when cut is closed, Release kills the whole
// group. If none does, it kills nothing, and processes of the group that are left keep
// running.
func (g *Group) Release(cut <-chan struct{}) {
	defer g.closePipes()
	select {
	case <-g.gone:
		return
	case <-time.After(PipeWait):
	case <-cut:
	}
	g.log.Warn("command ended, but something it started still held its output and was killed")
	g.Kill()
	g.lastLines()
}

// lastLines waits for the last output of a killed group. If a process has left the group
// and still holds the output, it stops reading.
func (g *Group) lastLines() {
	select {
	case <-g.gone:
		return
	case <-time.After(PipeWait):
	}
	g.log.Warn("a process that the command started has left its process group and still holds its output, which is no longer read")
	g.closePipes()
	<-g.gone
}

func (g *Group) closePipes() {
	for _, pipe := range g.pipes {
		_ = pipe.Close() // only read from
	}
}

// signal sends a signal to the whole group, if that still exists.
func (g *Group) signal(s syscall.Signal) {
	if err := syscall.Kill(-g.cmd.Process.Pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		g.log.Error("the command's process group was not signalled", "signal", s.String(), "error", err)
	}
}
