package sqlitestore

import (
	"fmt"
	"math"
	"time"
	"unsafe"

	"modernc.org/libc"
	_ "modernc.org/sqlite" // its init adapts the library to the machine
	sqlite3 "modernc.org/sqlite/lib"
)

// library is a connection of SQLite's own interface. A charge runs about six statements;
// through database/sql they cost more than all that SQLite does for them.
//
// All memory that SQLite sees is its own: what is bound is copied there, and what is read is
// copied from there.
type library struct {
	tls  *libc.TLS
	db   uintptr
	main uintptr // the name of the file's schema
	mem  uintptr // for values on their way into SQLite
	cap  int     // of mem
}

// statement is a prepared statement.
type statement uintptr

// sqliteError is an error of SQLite's, with its extended result code.
type sqliteError struct {
	code int
	text string
}

func (e *sqliteError) Error() string { return e.text }

// fault is the error of a result code; nil for those that are none.
func (l *library) fault(code int32) error {
	switch code {
	case sqlite3.SQLITE_OK, sqlite3.SQLITE_ROW, sqlite3.SQLITE_DONE:
		return nil
	}
	text := libc.GoString(sqlite3.Xsqlite3_errstr(l.tls, code))
	if l.db != 0 {
		if more := libc.GoString(sqlite3.Xsqlite3_errmsg(l.tls, l.db)); more != text {
			text += ": " + more
		}
	}
	return &sqliteError{code: int(code), text: fmt.Sprintf("%s (%d)", text, code)}
}

// openLibrary opens the file of a URI, and creates it unless the URI says otherwise.
func openLibrary(uri string) (library, error) {
	l := library{tls: libc.NewTLS()}
	name, err := libc.CString(uri)
	if err != nil {
		l.tls.Close()
		return library{}, err
	}
	defer libc.Xfree(l.tls, name)
	const flags = sqlite3.SQLITE_OPEN_READWRITE | sqlite3.SQLITE_OPEN_CREATE | sqlite3.SQLITE_OPEN_NOMUTEX | sqlite3.SQLITE_OPEN_URI
	var code int32
	l.db = l.pointer(func(at uintptr) { code = sqlite3.Xsqlite3_open_v2(l.tls, name, at, flags, 0) })
	if l.db != 0 {
		sqlite3.Xsqlite3_extended_result_codes(l.tls, l.db, 1)
	}
	if err := l.fault(code); err != nil {
		_ = l.close() // it was not opened
		return library{}, err
	}
	l.keepPlans()
	l.main, err = libc.CString("main")
	return l, err
}

// keepPlans has a statement's plan not depend on what is bound to it: else SQLite prepares
// some anew at each run. An error only makes them slower.
func (l *library) keepPlans() {
	const room = 16 // two values
	values := l.tls.Alloc(room)
	defer l.tls.Free(room)
	sqlite3.Xsqlite3_db_config(l.tls, l.db, sqlite3.SQLITE_DBCONFIG_ENABLE_QPSG, libc.VaList(values, int32(1), uintptr(0)))
}

// pointer is what SQLite writes to the address that it is given.
func (l *library) pointer(write func(at uintptr)) uintptr {
	at := l.tls.Alloc(int(unsafe.Sizeof(uintptr(0))))
	defer l.tls.Free(int(unsafe.Sizeof(uintptr(0))))
	to := (*uintptr)(address(at))
	*to = 0
	write(at)
	return *to
}

func (l *library) close() error {
	for _, at := range []uintptr{l.mem, l.main} {
		if at != 0 {
			libc.Xfree(l.tls, at)
		}
	}
	err := l.fault(sqlite3.Xsqlite3_close_v2(l.tls, l.db))
	l.tls.Close()
	*l = library{}
	return err
}

// prepare prepares one statement.
func (l *library) prepare(query string) (statement, error) {
	text, err := libc.CString(query)
	if err != nil {
		return 0, err
	}
	defer libc.Xfree(l.tls, text)
	var code int32
	s := l.pointer(func(at uintptr) {
		code = sqlite3.Xsqlite3_prepare_v3(l.tls, l.db, text, -1, sqlite3.SQLITE_PREPARE_PERSISTENT, at, 0)
	})
	return statement(s), l.fault(code)
}

// runAll runs all statements of a text.
func (l *library) runAll(text string) error {
	all, err := libc.CString(text)
	if err != nil {
		return err
	}
	defer libc.Xfree(l.tls, all)
	return l.fault(sqlite3.Xsqlite3_exec(l.tls, l.db, all, 0, 0, 0))
}

func (l *library) finalize(s statement) { sqlite3.Xsqlite3_finalize(l.tls, uintptr(s)) }

// reset makes a statement ready for its next run. Its error would be that of the last step.
func (l *library) reset(s statement) { sqlite3.Xsqlite3_reset(l.tls, uintptr(s)) }

// step runs a statement to its next row; row is false at its end.
func (l *library) step(s statement) (row bool, err error) {
	code := sqlite3.Xsqlite3_step(l.tls, uintptr(s))
	return code == sqlite3.SQLITE_ROW, l.fault(code)
}

// bind sets the values of a statement: int64, int, bool, string, []byte, or nil for NULL.
func (l *library) bind(s statement, values []any) error {
	for i, value := range values {
		at := int32(i + 1) //nolint:gosec // a statement has few values
		var code int32
		switch v := value.(type) {
		case nil:
			code = sqlite3.Xsqlite3_bind_null(l.tls, uintptr(s), at)
		case int64:
			code = sqlite3.Xsqlite3_bind_int64(l.tls, uintptr(s), at, v)
		case int:
			code = sqlite3.Xsqlite3_bind_int64(l.tls, uintptr(s), at, int64(v))
		case bool:
			number := int64(0)
			if v {
				number = 1
			}
			code = sqlite3.Xsqlite3_bind_int64(l.tls, uintptr(s), at, number)
		case string:
			copy(l.memory(len(v)), v)
			code = sqlite3.Xsqlite3_bind_text(l.tls, uintptr(s), at, l.mem, int32(len(v)), transient) //nolint:gosec // SQLite's own bound is lower
		case []byte:
			copy(l.memory(len(v)), v)
			code = sqlite3.Xsqlite3_bind_blob(l.tls, uintptr(s), at, l.mem, int32(len(v)), transient) //nolint:gosec // likewise
		default:
			return fmt.Errorf("bind value %d: a %T", i+1, value)
		}
		if err := l.fault(code); err != nil {
			return err
		}
	}
	return nil
}

// transient has SQLite copy what is bound.
const transient = ^uintptr(0)

// memory is memory of SQLite's for n bytes, at l.mem, until the next call. There is always
// some: to SQLite, a value without an address is NULL.
func (l *library) memory(n int) []byte {
	if l.cap < max(n, 1) {
		if l.mem != 0 {
			libc.Xfree(l.tls, l.mem)
		}
		l.cap = max(2*n, 256)
		l.mem = libc.Xmalloc(l.tls, libc.Tsize_t(l.cap))
	}
	return bytesAt(l.mem, n)
}

// bytesAt is SQLite's memory at an address.
func bytesAt(at uintptr, n int) []byte {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(address(at)), n)
}

// address is a pointer into SQLite's memory, which Go neither moves nor frees: vet refuses
// the plain conversion, since for Go's own memory it would be wrong.
func address(at uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&at)) }

// scan reads the columns of a row. NULL is 0, an empty string or nil bytes; bytes that are
// there are not nil.
func (l *library) scan(s statement, dest []any) error {
	for i, to := range dest {
		at := int32(i) //nolint:gosec // a row has few columns
		kind := sqlite3.Xsqlite3_column_type(l.tls, uintptr(s), at)
		switch to := to.(type) {
		case *int64:
			*to = sqlite3.Xsqlite3_column_int64(l.tls, uintptr(s), at)
		case *int:
			*to = int(sqlite3.Xsqlite3_column_int64(l.tls, uintptr(s), at))
		case *bool:
			*to = sqlite3.Xsqlite3_column_int64(l.tls, uintptr(s), at) != 0
		case *string:
			*to = string(l.column(s, at))
			continue
		case *storedID:
			to.read(kind == sqlite3.SQLITE_BLOB, l.column(s, at))
			continue
		case *[]byte:
			if *to = nil; kind != sqlite3.SQLITE_NULL {
				*to = append([]byte{}, l.column(s, at)...)
			}
			continue
		default:
			return fmt.Errorf("scan column %d: into a %T", i, to)
		}
		if kind != sqlite3.SQLITE_INTEGER && kind != sqlite3.SQLITE_NULL {
			return &sqliteError{code: sqlite3.SQLITE_MISMATCH, text: fmt.Sprintf("column %d of a row holds no number (%d)", i, sqlite3.SQLITE_MISMATCH)}
		}
	}
	return nil
}

// column is the bytes of a column, until the statement's next step.
func (l *library) column(s statement, at int32) []byte {
	from := sqlite3.Xsqlite3_column_blob(l.tls, uintptr(s), at)
	return bytesAt(from, int(sqlite3.Xsqlite3_column_bytes(l.tls, uintptr(s), at)))
}

// changes is how many rows the last statement inserted, updated or deleted.
func (l *library) changes() int64 { return sqlite3.Xsqlite3_changes64(l.tls, l.db) }

// version is a number that this connection changes with each of its commits, and when a
// transaction begins that finds the file changed by another one.
func (l *library) version() (n uint32, err error) {
	const room = 8
	at := l.tls.Alloc(room)
	defer l.tls.Free(room)
	err = l.fault(sqlite3.Xsqlite3_file_control(l.tls, l.db, l.main, sqlite3.SQLITE_FCNTL_DATA_VERSION, at))
	return *(*uint32)(address(at)), err
}

// interrupt ends what runs on the connection. Any goroutine may call it.
func (l *library) interrupt() { sqlite3.Xsqlite3_interrupt(l.tls, l.db) }

// waitBusy sets how long a statement waits where another connection holds what it needs.
func (l *library) waitBusy(d time.Duration) {
	sqlite3.Xsqlite3_busy_timeout(l.tls, l.db, int32(min(d.Milliseconds(), math.MaxInt32))) //nolint:gosec // bounded
}
