package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"modernc.org/sqlite"
)

// conn is one connection with its prepared statements. One goroutine uses it at
// a time.
//
// Its statements take no context: each touches a bounded number of rows, and a context
// would cost a goroutine for each statement. Only begin can wait for others, and takes the
// context. Callers check the context between statements and right before the commit.
type conn struct {
	db    *sql.DB
	raw   *sql.Conn
	stmts map[string]*sql.Stmt
}

// connect opens the file. Unless readOnly, it creates a missing file, with the mode of
// path.lock, which must exist. SQLite copies that mode itself, and gives -wal and -shm the
// mode of the file, whatever the umask.
func connect(ctx context.Context, path string, busy time.Duration, readOnly bool) (*conn, error) {
	if !readOnly {
		if err := checkWritable(path); err != nil {
			return nil, err
		}
	}
	query := url.Values{"_pragma": {
		"busy_timeout(" + strconv.FormatInt(busy.Milliseconds(), 10) + ")",
		"synchronous(FULL)",
	}, "modeof": {path + ".lock"}}
	if readOnly {
		query.Set("mode", "ro")
		query.Add("_pragma", "query_only(1)")
	}
	text := strings.ReplaceAll(query.Encode(), "+", "%20") // SQLite does not decode + to a space
	connector, err := sqlite.NewConnector((&url.URL{Scheme: "file", Path: path, RawQuery: text}).String())
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(1)
	raw, err := db.Conn(ctx)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &conn{db: db, raw: raw, stmts: map[string]*sql.Stmt{}}, nil
}

// checkWritable refuses files that this user may not write. SQLite would open them
// read-only and leave files of the same mode beside them, which would still block writing
// after somebody made the file itself writable.
func checkWritable(path string) error {
	for _, suffix := range []string{"", "-wal", "-shm"} {
		err := unix.Faccessat(unix.AT_FDCWD, path+suffix, unix.W_OK, unix.AT_EACCESS)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return &os.PathError{Op: "write to", Path: path + suffix, Err: err}
		}
	}
	return nil
}

func (c *conn) close() error {
	if c == nil {
		return nil
	}
	var errs []error
	for _, stmt := range c.stmts {
		errs = append(errs, stmt.Close())
	}
	return errors.Join(append(errs, c.raw.Close(), c.db.Close())...)
}

// prepared returns the statement, which it prepares once for the connection.
func (c *conn) prepared(query string) (*sql.Stmt, error) {
	if stmt := c.stmts[query]; stmt != nil {
		return stmt, nil
	}
	stmt, err := c.raw.PrepareContext(context.Background(), query)
	if err == nil {
		c.stmts[query] = stmt
	}
	return stmt, err
}

// exec runs a statement.
func (c *conn) exec(query string, args ...any) error {
	stmt, err := c.prepared(query)
	if err != nil {
		return err
	}
	_, err = stmt.ExecContext(context.Background(), args...)
	return err
}

// change runs a statement and returns how many rows it changed.
func (c *conn) change(query string, args ...any) (int64, error) {
	stmt, err := c.prepared(query)
	if err != nil {
		return 0, err
	}
	result, err := stmt.ExecContext(context.Background(), args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// first scans the first row into dest. It returns false if there is no row.
func (c *conn) first(query string, args []any, dest ...any) (bool, error) {
	stmt, err := c.prepared(query)
	if err != nil {
		return false, err
	}
	err = stmt.QueryRowContext(context.Background(), args...).Scan(dest...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// each scans every row into dest and calls visit.
func (c *conn) each(query string, args []any, visit func(), dest ...any) (err error) {
	stmt, err := c.prepared(query)
	if err != nil {
		return err
	}
	rows, err := stmt.QueryContext(context.Background(), args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		visit()
	}
	return rows.Err()
}

// begin starts a transaction. It waits for other programs until the context ends. The
// transaction may have begun even if begin fails.
func (c *conn) begin(ctx context.Context, how string) error {
	_, err := c.raw.ExecContext(ctx, "BEGIN "+how)
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
