package sqlitestore

import (
	"context"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// conn is one connection with its prepared statements. One goroutine uses it at
// a time.
//
// Its statements take no context: each touches a bounded number of rows. Only begin and
// script can take long, and take the context. Callers check the context between statements
// and right before the commit.
type conn struct {
	handle
	busy  time.Duration
	stmts map[string]statement
}

// connect opens the file. Unless readOnly, it creates a missing file, with the mode of
// path.lock, which must exist. SQLite copies that mode itself, and gives -wal and -shm the
// mode of the file, whatever the umask.
func connect(ctx context.Context, path string, busy time.Duration, readOnly bool) (*conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !readOnly {
		if err := checkWritable(path); err != nil {
			return nil, err
		}
	}
	query := url.Values{"modeof": {path + ".lock"}}
	if readOnly {
		query.Set("mode", "ro")
	}
	text := strings.ReplaceAll(query.Encode(), "+", "%20") // SQLite does not decode + to a space
	handle, err := openHandle((&url.URL{Scheme: "file", Path: path, RawQuery: text}).String())
	if err != nil {
		return nil, err
	}
	c := &conn{handle: handle, busy: busy, stmts: map[string]statement{}}
	c.waitBusy(busy)
	pragmas := "PRAGMA synchronous=FULL;"
	if readOnly {
		pragmas += "PRAGMA query_only=1;"
	}
	if err := c.script(ctx, pragmas); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// checkWritable refuses files that this user may not read and write. SQLite would open them
// read-only and leave files of the same mode beside them, which would still block writing
// after somebody made the file itself writable.
func checkWritable(path string) error {
	for _, suffix := range []string{"", "-wal", "-shm"} {
		err := unix.Faccessat(unix.AT_FDCWD, path+suffix, unix.R_OK|unix.W_OK, unix.AT_EACCESS)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return &os.PathError{Op: "read and write", Path: path + suffix, Err: err}
		}
	}
	return nil
}

func (c *conn) close() error {
	if c == nil {
		return nil
	}
	for _, s := range c.stmts {
		c.finalize(s) // its error would be that of its last step
	}
	return c.handle.close()
}

// prepared returns the statement, which it prepares once for the connection.
func (c *conn) prepared(query string) (statement, error) {
	if s, ok := c.stmts[query]; ok {
		return s, nil
	}
	s, err := c.prepare(query)
	if err == nil {
		c.stmts[query] = s
	}
	return s, err
}

// exec runs a statement.
func (c *conn) exec(query string, args ...any) error {
	s, err := c.prepared(query)
	if err != nil {
		return err
	}
	defer c.reset(s)
	if err := c.bind(s, args); err != nil {
		return err
	}
	for more := true; more && err == nil; {
		more, err = c.step(s)
	}
	return err
}

// change runs a statement and returns how many rows it changed.
func (c *conn) change(query string, args ...any) (int64, error) {
	err := c.exec(query, args...)
	return c.changes(), err
}

// first scans the first row into dest. It returns false if there is no row.
func (c *conn) first(query string, args []any, dest ...any) (found bool, err error) {
	s, err := c.prepared(query)
	if err != nil {
		return false, err
	}
	defer c.reset(s)
	if err := c.bind(s, args); err != nil {
		return false, err
	}
	if found, err = c.step(s); !found || err != nil {
		return false, err
	}
	return true, c.scan(s, dest)
}

// each scans every row into dest and calls visit, which must not run the same query.
func (c *conn) each(query string, args []any, visit func(), dest ...any) error {
	s, err := c.prepared(query)
	if err != nil {
		return err
	}
	defer c.reset(s)
	if err := c.bind(s, args); err != nil {
		return err
	}
	for {
		if more, err := c.step(s); !more || err != nil {
			return err
		}
		if err := c.scan(s, dest); err != nil {
			return err
		}
		visit()
	}
}

// within runs a step of this connection that may take long, and interrupts SQLite when the
// context ends; the error is then the context's.
func (c *conn) within(ctx context.Context, step func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		c.interrupt()
		close(interrupted)
	})
	err := step()
	if !stop() {
		<-interrupted // it uses the connection
		if err != nil {
			return ctx.Err()
		}
	}
	return err
}

// script runs statements that are separated by semicolons, and reads none of their rows.
func (c *conn) script(ctx context.Context, text string) error {
	return c.within(ctx, func() error { return c.runAll(text) })
}

// The ways to begin a transaction: to write, or to read only.
const (
	beginWriting = "BEGIN IMMEDIATE"
	beginReading = "BEGIN DEFERRED"
)

// begin starts a transaction. It waits for other programs until the context ends.
func (c *conn) begin(ctx context.Context, how string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.waitBusy(0)
	defer c.waitBusy(c.busy)
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := c.exec(how)
		if !isBusy(err) {
			return err
		}
		if cause := wait(ctx, pause); cause != nil {
			return cause
		}
	}
}

// errOf is the error of a query whose row is always there.
func errOf(_ bool, err error) error { return err }
