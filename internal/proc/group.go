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

// PipeWait is how long [Group.Release] and [Group.Stop] wait for the output of a command
// that has ended while something that it started still holds it.
const PipeWait = 2 * time.Second

// Group is a command under way, and all that it started and that stayed in its process
// group. Its user ends it with Stop, or with Release once it has exited.
type Group struct {
	cmd    *exec.Cmd
	log    *slog.Logger
	output sync.WaitGroup
	pipes  []*os.File // our ends
	exited chan struct{}
	gone   chan struct{}
	reap   func() error // frees the group's number; the error is that of the end
}

// Start starts a command in a process group of its own and hands on what it prints line
// by line, until [Group.Stop] or [Group.Release] has returned: line is called with the
// stream's name and as in [ReadLines], by one goroutine for each stream. An error means
// that the command was not started.
func Start(cmd *exec.Cmd, log *slog.Logger, line func(stream, kept string, length int)) (*Group, error) {
	g := &Group{cmd: cmd, log: log, exited: make(chan struct{}), gone: make(chan struct{}), reap: sync.OnceValue(cmd.Wait)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	theirs, err := g.readOutput(line)
	if err == nil {
		err = cmd.Start()
	}
	for _, file := range theirs {
		_ = file.Close() // the command has it, or nobody wants it
	}
	if err != nil {
		g.output.Wait()
		g.closePipes()
		return nil, fmt.Errorf("%w; is it there, may it be run, and is there what its first line names?", err)
	}
	log.Debug("command started", "pid", cmd.Process.Pid)
	go g.await()
	return g, nil
}

// readOutput connects the command's output. The files are the command's ends, to be
// closed once it has started, also after an error.
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

// await notes the command's end. Where the system lets us it is not reaped yet:
// until then no other process can have its number, nor another group.
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

// Gone is closed when the command's output has ended too.
func (g *Group) Gone() <-chan struct{} { return g.gone }

// Wait frees the group's number once the command has ended, and returns the error of its
// end, as in [exec.Cmd.Wait].
func (g *Group) Wait() error { return g.reap() }

// Kill kills the whole group. While anything of the group is left, or Wait has not been
// called, no other group has its number.
func (g *Group) Kill() { g.signal(syscall.SIGKILL) }

// Stop tells the group to end and kills, the grace later or at once when cut is closed,
// what of it is left: the command, what it started, or both. It returns when the command
// has ended.
func (g *Group) Stop(grace time.Duration, cut <-chan struct{}) {
	defer g.closePipes()
	g.log.Debug("command told to end")
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

// Release lets a command that has ended go, once its output has ended. It kills what the
// command has left behind in its group and holds the output, [PipeWait] later or at once
// when cut is closed; it leaves alone what holds no output.
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

// lastLines waits for what a group that was killed had written. What has left
// the group, and holds the output still, is not read any more.
func (g *Group) lastLines() {
	select {
	case <-g.gone:
		return
	case <-time.After(PipeWait):
	}
	g.log.Warn("something the command started has left its process group and holds its output; it is not heard any more")
	g.closePipes()
	<-g.gone
}

func (g *Group) closePipes() {
	for _, pipe := range g.pipes {
		_ = pipe.Close() // only read from
	}
}

// signal sends a signal to the whole group. One that is gone needs none.
func (g *Group) signal(s syscall.Signal) {
	if err := syscall.Kill(-g.cmd.Process.Pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		g.log.Error("the command's process group was not signalled", "signal", s.String(), "error", err)
	}
}
