package proc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

// Foreground is a command that runs in this process's own group and terminal, with its
// standard input, output and error.
type Foreground struct {
	Command []string
	Env     []string        // nil: this process's own
	Stop    <-chan struct{} // when closed, the command ends, and everything that it started
	Grace   time.Duration   // between SIGTERM and SIGKILL
	Linger  time.Duration   // how long Run waits for descendants that outlive the command
	Lives   func(n int)     // called once before that wait, with the number of descendants
	// Line, unless nil, is called for each line that the command writes to standard error, and for
	// those of standard output if both are the same file, which keeps their order: see
	// [ReadLines]. The lines go where they went before.
	Line func(stream, kept string, length int)
	Log  *slog.Logger
}

// Run starts the command and waits for its end. The code is as a shell has it: 126 if it is
// not executable, 127 if it was not found, 128+n if signal n ended it. An error means that it
// was not started. stopped means that Stop ended it, or the end of ctx, which does the same.
//
// The terminal sends INT, QUIT and TSTP to the command, too. So Run passes INT and QUIT on only
// if this group is not in the foreground of a terminal: then somebody else sent them. It never
// passes on TSTP, but stops this process when the command stops, so that a shell sees it. It
// always passes on TERM, HUP, USR1, USR2 and CONT. A sender who signals the whole group reaches
// the command twice.
//
// Run waits at most Linger for descendants that are alive when the command has ended, or until
// INT, QUIT, TERM or HUP; then it leaves them alone. Stop ends that wait and the descendants.
// On Linux orphaned descendants become children of this process, which reaps them; elsewhere
// only the command is ended. Nothing else in this process may start or await a child meanwhile.
func (f *Foreground) Run(ctx context.Context) (code int, stopped bool, err error) {
	c := &foreground{Foreground: f, stop: f.Stop, done: ctx.Done()}
	defer c.receive(&c.signals, append(Ending(), syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTSTP)...)()
	defer c.receive(&c.children, syscall.SIGCHLD)()
	defer c.receive(&c.continued, syscall.SIGCONT)()
	if err := adoptOrphans(); err != nil {
		f.Log.Warn("orphans of the command will not end with it", "error", err)
	}
	// A reader of standard error that went away must not end this process before it has said, and
	// recorded, what became of the command: writes fail instead from now on.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	files := []*os.File{os.Stdin, os.Stdout, os.Stderr}
	if f.Line != nil {
		copied, err := f.copyErrors()
		if err != nil {
			return 126, false, fmt.Errorf("copy what the command prints: %w", err)
		}
		defer copied.end()
		files = copied.files
	}
	if c.command, err = f.start(files); errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return 127, false, err
	} else if err != nil {
		return 126, false, err
	}
	defer func() { _ = c.command.Release() }()
	for !c.ended && !c.stopping {
		c.next(nil)
	}
	c.reap(false)
	stopped = !c.ended
	if !c.stopping {
		c.linger()
	}
	if c.stopping {
		c.end()
	}
	return c.code, stopped, nil
}

func (f *Foreground) start(files []*os.File) (*os.Process, error) {
	path, err := exec.LookPath(f.Command[0])
	if err != nil && !errors.Is(err, exec.ErrDot) { // which a shell runs, too
		return nil, err
	}
	attr := &os.ProcAttr{Env: f.Env, Files: files}
	p, err := os.StartProcess(path, f.Command, attr)
	if errors.Is(err, syscall.ENOEXEC) { // a script without an interpreter line
		return os.StartProcess("/bin/sh", slices.Concat([]string{"sh", path}, f.Command[1:]), attr)
	}
	return p, err
}
