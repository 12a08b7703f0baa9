package proc

import (
	"io"
	"os"
	"time"
)

// copied is what a command writes to standard error, on its way to where it went before.
type copied struct {
	files  []*os.File // of the command
	theirs *os.File   // the end that the command has
	ours   *os.File
	done   chan struct{} // closed once all was read
}

// copyErrors starts to copy the command's standard error.
func (f *Foreground) copyErrors() (*copied, error) {
	ours, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c := &copied{files: []*os.File{os.Stdin, os.Stdout, theirs}, theirs: theirs, ours: ours, done: make(chan struct{})}
	if isSameFile(os.Stdout, os.Stderr) {
		c.files[1] = theirs
	}
	go func() {
		defer close(c.done)
		err := ReadLines(io.TeeReader(ours, os.Stderr), func(kept string, length int) { f.Line("stderr", kept, length) })
		if err != nil { // nobody reads what it writes: let it know, as it would without us
			_ = ours.Close()
		}
	}()
	return c, nil
}

// end stops copying: at once if the command's end is closed everywhere, else, if something that
// it started still has it, after [PipeWait].
func (c *copied) end() {
	_ = c.theirs.Close() // it is closed already if the command was started
	select {
	case <-c.done:
	case <-time.After(PipeWait):
		_ = c.ours.Close()
		<-c.done
	}
	_ = c.ours.Close()
}

func isSameFile(a, b *os.File) bool {
	x, errX := a.Stat()
	y, errY := b.Stat()
	return errX == nil && errY == nil && os.SameFile(x, y)
}
