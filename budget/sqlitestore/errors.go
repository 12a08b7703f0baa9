package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/quotactl/quotactl/budget/driver"
)

// explain turns what went wrong while doing what into an error of package
// budget, or of the caller's context when that has ended. Errors that already
// say which one they are keep it.
func (s *Store) explain(ctx context.Context, what string, err error) error {
	if err == nil {
		return nil
	}
	say := func(advice string, kind error) error {
		return fmt.Errorf("sqlite store %s: %s: %w: %w; %s", s.path, what, kind, err, advice)
	}
	for _, known := range []error{driver.ErrInvalid, driver.ErrUnavailable, driver.ErrStoreConfig, driver.ErrClock, driver.ErrDamaged, driver.ErrLost, driver.ErrClosed} {
		if errors.Is(err, known) {
			return fmt.Errorf("sqlite store %s: %s: %w", s.path, what, err)
		}
	}
	// A deadline whose cause is ErrUnavailable is the store's as a whole, not the caller's.
	if cause := ctx.Err(); cause != nil && !errors.Is(context.Cause(ctx), driver.ErrUnavailable) {
		return fmt.Errorf("sqlite store %s: %s: %w", s.path, what, cause)
	}
	if errors.Is(err, errConverting) {
		return fmt.Errorf("sqlite store %s: %s: %w: %w", s.path, what, driver.ErrUnavailable, errConverting)
	}
	if isTimeUp(err) {
		held := &heldError{}
		if errors.As(err, &held) && held.by != "" {
			return fmt.Errorf("sqlite store %s: %s: %w: waited in vain for %s.lock, %s",
				s.path, what, driver.ErrUnavailable, s.path, held.by)
		}
		return fmt.Errorf("sqlite store %s: %s: %w: waited %s for its turn; is another process holding %s.lock or the file?",
			s.path, what, driver.ErrUnavailable, s.timeout, s.path)
	}
	var from *sqliteError
	answered := errors.As(err, &from)
	if answered && from.code == sqlite3.SQLITE_IOERR_SHORT_READ {
		return say("was the file removed or replaced while another process has it open? That process switches to the new file with its next call, or when it is restarted; then try again", driver.ErrUnavailable)
	}
	dir := filepath.Dir(s.path)
	if answered && from.code&0xff == sqlite3.SQLITE_CANTOPEN {
		refused := from.system
		if refused == nil {
			dir = filepath.Dir(target(s.path))
			if refused = tryNewFile(dir); refused != nil {
				err = fmt.Errorf("%w: %w", err, refused)
			}
		}
		answered = refused == nil // else the operating system says more than SQLite
	}
	if advice := driver.Shortage(dir, err); advice != "" {
		return say(advice, driver.ErrUnavailable)
	}
	if answered {
		return say(meaning(from.code & 0xff))
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return say("make the directory, or give another path", driver.ErrStoreConfig)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS), errors.Is(err, unix.EISDIR):
		return say(adviceWritable, driver.ErrStoreConfig)
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENAMETOOLONG):
		return say("give another path", driver.ErrStoreConfig)
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOTSUP):
		return say("its file system cannot lock files: use a local disk", driver.ErrStoreConfig)
	}
	return say("the outcome is unknown; the same id may be sent again", driver.ErrUnavailable)
}

// target is where a path's links lead, whether or not there is a file: SQLite makes it there.
func target(path string) string {
	for range 40 { // as many as Linux follows
		to, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		path = to
	}
	return path
}

// tryNewFile makes a file in a directory, writes a page to it and removes it, to learn what SQLite met
// there: SQLite does not say why it could not make a file.
func tryNewFile(dir string) error {
	f, err := os.CreateTemp(dir, ".quotactl-*")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, os.Getpagesize()))
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

const adviceWritable = "the file and its directory must be writable for this user; run all processes as one user, or give another path"

// meaning returns what a primary result code of SQLite means to a caller, and the advice.
func meaning(code int) (advice string, kind error) {
	switch code {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL:
		return "another program holds the file: end that program, or try again", driver.ErrUnavailable
	case sqlite3.SQLITE_NOMEM:
		return "the machine is out of memory: end programs, or give it more", driver.ErrUnavailable
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH:
		return adviceWritable, driver.ErrStoreConfig
	case sqlite3.SQLITE_CANTOPEN: // and the next file can be made: what was short no longer is
		return "try again", driver.ErrUnavailable
	case sqlite3.SQLITE_NOTADB:
		return "it is not a SQLite file: give another path", driver.ErrStoreConfig
	case sqlite3.SQLITE_CORRUPT:
		return "end all processes that use it and restore it from a backup, or move it away to begin afresh", driver.ErrDamaged
	case sqlite3.SQLITE_ERROR, sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_CONSTRAINT:
		return "its tables have been changed: restore it from a backup, or move it away to begin afresh", driver.ErrDamaged
	default:
		return "check its disk, then try again", driver.ErrUnavailable
	}
}

// isTimeUp reports whether the time for the call ran out.
func isTimeUp(err error) bool { return errors.Is(err, context.DeadlineExceeded) }

// isBusy reports whether another connection holds what SQLite needed.
func isBusy(err error) bool {
	var from *sqliteError
	return errors.As(err, &from) && from.code&0xff == sqlite3.SQLITE_BUSY
}

// isTaken reports whether a row with the same primary key exists.
func isTaken(err error) bool {
	var from *sqliteError
	return errors.As(err, &from) && from.code == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY
}
