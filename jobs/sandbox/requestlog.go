package sandbox

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// ErrLogInUse is wrapped by [New]'s error when another sandbox holds the request log.
var ErrLogInUse = errors.New("another sandbox is using it")

// maxUnits bounds the units in a line of the log, so that sums stay far from overflow.
const maxUnits = 1_000_000_000_000_000

// entry is one API request: a line of the request log.
type entry struct {
	At     time.Time // UTC, whole microseconds
	Method string
	Path   string
	Query  string // YouTube's own parameters but for the secret ones, sorted by name
	Units  int64
	Status int    // 0: the connection was dropped
	Reason string // YouTube's reason of an error answer, or reasonDropped; empty when answered 200
}

const atLayout = "2006-01-02T15:04:05.000000Z"

// line is an entry as it is written.
type line struct {
	At     string `json:"at"`
	Method string `json:"method"`
	Path   string `json:"path"`
	Query  string `json:"query"`
	Units  int64  `json:"units"`
	Status int    `json:"status"`
	Reason string `json:"reason,omitempty"`
}

func (e entry) encode() []byte {
	return encodeJSON(line{e.At.Format(atLayout), e.Method, e.Path, e.Query, e.Units, e.Status, e.Reason}, "")
}

func decodeEntry(b []byte) (entry, error) {
	var l line
	if err := json.Unmarshal(b, &l); err != nil {
		return entry{}, err
	}
	at, err := time.Parse(atLayout, l.At)
	if err != nil {
		return entry{}, err
	}
	if l.Units < 0 || l.Units > maxUnits {
		return entry{}, fmt.Errorf("units is %d, not 0 to %d", l.Units, int64(maxUnits))
	}
	return entry{at, l.Method, l.Path, l.Query, l.Units, l.Status, l.Reason}, nil
}

// requestLog is the file of a server's requests. It is not safe for use by several goroutines. A nil log accepts
// everything and stores nothing.
type requestLog struct {
	file   logFile
	path   string
	size   int64 // bytes of whole lines
	broken error // set when a half-written line could not be taken back
}

// logFile is the part of *os.File that is used after reading.
type logFile interface {
	io.WriteCloser
	Truncate(size int64) error
}

// openLog opens or creates the log at path, locks it for this server alone, and passes each line to each, in order. An
// unfinished last line, of a server that crashed, is cut off: its request was never answered.
func openLog(path string, each func(entry)) (*requestLog, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("sandbox: opening the request log: %w", err)
	}
	l := &requestLog{file: f, path: path}
	if err := l.take(f, each); err != nil {
		_ = f.Close()
		return nil, err
	}
	return l, nil
}

func (l *requestLog) take(f *os.File, each func(entry)) error {
	// The lock belongs to the open file, so it also keeps out a second sandbox of this process, and ends with the
	// process, even after a crash.
	switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
	case errors.Is(err, syscall.EWOULDBLOCK):
		return fmt.Errorf("sandbox: opening the request log %s: %w: stop that one, or name another log", l.path, ErrLogInUse)
	case err != nil:
		return fmt.Errorf("sandbox: locking the request log %s: %w", l.path, err)
	}
	torn, err := l.read(f, each)
	if err != nil {
		return err
	}
	if torn {
		if err := f.Truncate(l.size); err != nil {
			return fmt.Errorf("sandbox: cutting off the unfinished last line of the request log %s: %w", l.path, err)
		}
	}
	return nil
}

// read passes on the whole lines of r and reports whether an unfinished line follows them.
func (l *requestLog) read(r io.Reader, each func(entry)) (torn bool, err error) {
	lines := bufio.NewReader(r)
	for n := 1; ; n++ {
		b, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return len(b) > 0, nil
		}
		if err != nil {
			return false, fmt.Errorf("sandbox: reading the request log %s: %w", l.path, err)
		}
		e, err := decodeEntry(bytes.TrimSuffix(b, []byte("\n")))
		if err != nil {
			return false, fmt.Errorf("sandbox: reading the request log: %s:%d: not a request: %w: remove the line, or move the file away to begin at 0 units",
				l.path, n, err)
		}
		each(e)
		l.size += int64(len(b))
	}
}

// append writes one line in a single write. It removes a line that was not written whole, so that the file
// stays readable; if that fails, too, so does every later append.
func (l *requestLog) append(e entry) error {
	if l == nil {
		return nil
	}
	if l.broken != nil {
		return l.broken
	}
	b := e.encode()
	if _, err := l.file.Write(b); err != nil {
		err = fmt.Errorf("writing the request log %s: %w: make room, or restart without a log", l.path, err)
		if back := l.file.Truncate(l.size); back != nil {
			l.broken = errors.Join(err, fmt.Errorf("removing the unfinished line: %w", back))
			return l.broken
		}
		return err
	}
	l.size += int64(len(b))
	return nil
}

func (l *requestLog) close() error {
	if l == nil {
		return nil
	}
	if err := l.file.Close(); err != nil {
		return fmt.Errorf("sandbox: closing the request log %s: %w", l.path, err)
	}
	return nil
}
