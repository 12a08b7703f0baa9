package sqlitestore

import (
	"fmt"
	"math"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"modernc.org/libc"
	_ "modernc.org/sqlite" // its init adapts the library to the machine
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/quotactl/quotactl/budget/driver"
)

// handle is a connection of SQLite's own interface. A charge runs about six statements;
// through database/sql they cost more than all that SQLite does for them.
//
// All memory that SQLite sees is its own: what is bound is copied there, and what is read is
// copied from there.
type handle struct {
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
	code   int
	text   string
	system error // what the operating system refused; nil: nothing, or it is not known
}

func (e *sqliteError) Error() string { return e.text }

// Unwrap lets errors.Is see what the operating system refused.
func (e *sqliteError) Unwrap() error { return e.system }

// fault is the error of a result code; nil for those that report success.
func (h *handle) fault(code int32) error {
	switch code {
	case sqlite3.SQLITE_OK, sqlite3.SQLITE_ROW, sqlite3.SQLITE_DONE:
		return nil
	}
	text := libc.GoString(sqlite3.Xsqlite3_errstr(h.tls, code))
	if h.db != 0 {
		if more := libc.GoString(sqlite3.Xsqlite3_errmsg(h.tls, h.db)); more != text {
			text += ": " + more
		}
	}
	fault := &sqliteError{code: int(code), text: fmt.Sprintf("%s (%d)", text, code)}
	if fault.system = h.refused(code & 0xff); fault.system != nil {
		fault.text += ": " + fault.system.Error()
	}
	return fault
}

// refused is what the operating system refused when SQLite failed with a primary code; nil if it is
// not known. After a file could not be made, SQLite tries to open it to read, and keeps that error:
// ENOENT says nothing.
func (h *handle) refused(code int32) error {
	if code == sqlite3.SQLITE_FULL {
		return unix.ENOSPC
	}
	if h.db == 0 || code != sqlite3.SQLITE_IOERR && code != sqlite3.SQLITE_CANTOPEN {
		return nil
	}
	errno := unix.Errno(sqlite3.Xsqlite3_system_errno(h.tls, h.db)) //nolint:gosec // an errno is not negative
	switch {
	case driver.Shortage("", errno) != "", code == sqlite3.SQLITE_CANTOPEN && errno != 0 && errno != unix.ENOENT:
		return errno
	}
	return nil
}

// openHandle opens the file of a URI, and creates it unless the URI says otherwise.
func openHandle(uri string) (handle, error) {
	h := handle{tls: libc.NewTLS()}
	name, err := libc.CString(uri)
	if err != nil {
		h.tls.Close()
		return handle{}, err
	}
	defer libc.Xfree(h.tls, name)
	const flags = sqlite3.SQLITE_OPEN_READWRITE | sqlite3.SQLITE_OPEN_CREATE | sqlite3.SQLITE_OPEN_NOMUTEX | sqlite3.SQLITE_OPEN_URI
	var code int32
	h.db = h.pointer(func(at uintptr) { code = sqlite3.Xsqlite3_open_v2(h.tls, name, at, flags, 0) })
	if h.db != 0 {
		sqlite3.Xsqlite3_extended_result_codes(h.tls, h.db, 1)
	}
	if err := h.fault(code); err != nil {
		_ = h.close() // it was not opened
		return handle{}, err
	}
	h.keepPlans()
	h.main, err = libc.CString("main")
	return h, err
}

// keepPlans has a statement's plan not depend on what is bound to it: else SQLite prepares
// some anew at each run. An error only makes them slower.
func (h *handle) keepPlans() {
	const room = 16 // two values
	values := h.tls.Alloc(room)
	defer h.tls.Free(room)
	sqlite3.Xsqlite3_db_config(h.tls, h.db, sqlite3.SQLITE_DBCONFIG_ENABLE_QPSG, libc.VaList(values, int32(1), uintptr(0)))
}

// pointer is what SQLite writes to the address that it is given.
func (h *handle) pointer(write func(at uintptr)) uintptr {
	at := h.tls.Alloc(int(unsafe.Sizeof(uintptr(0))))
	defer h.tls.Free(int(unsafe.Sizeof(uintptr(0))))
	to := (*uintptr)(address(at))
	*to = 0
	write(at)
	return *to
}

func (h *handle) close() error {
	for _, at := range []uintptr{h.mem, h.main} {
		if at != 0 {
			libc.Xfree(h.tls, at)
		}
	}
	err := h.fault(sqlite3.Xsqlite3_close_v2(h.tls, h.db))
	h.tls.Close()
	*h = handle{}
	return err
}

// prepare prepares one statement.
func (h *handle) prepare(query string) (statement, error) {
	text, err := libc.CString(query)
	if err != nil {
		return 0, err
	}
	defer libc.Xfree(h.tls, text)
	var code int32
	s := h.pointer(func(at uintptr) {
		code = sqlite3.Xsqlite3_prepare_v3(h.tls, h.db, text, -1, sqlite3.SQLITE_PREPARE_PERSISTENT, at, 0)
	})
	return statement(s), h.fault(code)
}

// runAll runs all statements of a text.
func (h *handle) runAll(text string) error {
	all, err := libc.CString(text)
	if err != nil {
		return err
	}
	defer libc.Xfree(h.tls, all)
	return h.fault(sqlite3.Xsqlite3_exec(h.tls, h.db, all, 0, 0, 0))
}

func (h *handle) finalize(s statement) { sqlite3.Xsqlite3_finalize(h.tls, uintptr(s)) }

// reset makes a statement ready for its next run. Its error would be that of the last step.
func (h *handle) reset(s statement) { sqlite3.Xsqlite3_reset(h.tls, uintptr(s)) }

// step runs a statement to its next row; row is false at its end.
func (h *handle) step(s statement) (row bool, err error) {
	code := sqlite3.Xsqlite3_step(h.tls, uintptr(s))
	return code == sqlite3.SQLITE_ROW, h.fault(code)
}

// bind sets the values of a statement: int64, int, bool, string, []byte, or nil for NULL.
func (h *handle) bind(s statement, values []any) error {
	for i, value := range values {
		at := int32(i + 1) //nolint:gosec // a statement has few values
		var code int32
		switch v := value.(type) {
		case nil:
			code = sqlite3.Xsqlite3_bind_null(h.tls, uintptr(s), at)
		case int64:
			code = sqlite3.Xsqlite3_bind_int64(h.tls, uintptr(s), at, v)
		case int:
			code = sqlite3.Xsqlite3_bind_int64(h.tls, uintptr(s), at, int64(v))
		case bool:
			number := int64(0)
			if v {
				number = 1
			}
			code = sqlite3.Xsqlite3_bind_int64(h.tls, uintptr(s), at, number)
		case string:
			copy(h.memory(len(v)), v)
			code = sqlite3.Xsqlite3_bind_text(h.tls, uintptr(s), at, h.mem, int32(len(v)), transient) //nolint:gosec // SQLite's own bound is lower
		case []byte:
			copy(h.memory(len(v)), v)
			code = sqlite3.Xsqlite3_bind_blob(h.tls, uintptr(s), at, h.mem, int32(len(v)), transient) //nolint:gosec // likewise
		default:
			return fmt.Errorf("bind value %d: a %T", i+1, value)
		}
		if err := h.fault(code); err != nil {
			return err
		}
	}
	return nil
}

// transient has SQLite copy what is bound.
const transient = ^uintptr(0)

// memory is memory of SQLite's for n bytes, at h.mem, until the next call. There is always
// some: to SQLite, a value without an address is NULL.
func (h *handle) memory(n int) []byte {
	if h.cap < max(n, 1) {
		if h.mem != 0 {
			libc.Xfree(h.tls, h.mem)
		}
		h.cap = max(2*n, 256)
		h.mem = libc.Xmalloc(h.tls, libc.Tsize_t(h.cap))
	}
	return bytesAt(h.mem, n)
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
func (h *handle) scan(s statement, dest []any) error {
	for i, to := range dest {
		at := int32(i) //nolint:gosec // a row has few columns
		kind := sqlite3.Xsqlite3_column_type(h.tls, uintptr(s), at)
		switch to := to.(type) {
		case *int64:
			*to = sqlite3.Xsqlite3_column_int64(h.tls, uintptr(s), at)
		case *int:
			*to = int(sqlite3.Xsqlite3_column_int64(h.tls, uintptr(s), at))
		case *bool:
			*to = sqlite3.Xsqlite3_column_int64(h.tls, uintptr(s), at) != 0
		case *string:
			*to = string(h.column(s, at))
			continue
		case *storedID:
			to.read(kind == sqlite3.SQLITE_BLOB, h.column(s, at))
			continue
		case *[]byte:
			if *to = nil; kind != sqlite3.SQLITE_NULL {
				*to = append([]byte{}, h.column(s, at)...)
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
func (h *handle) column(s statement, at int32) []byte {
	from := sqlite3.Xsqlite3_column_blob(h.tls, uintptr(s), at)
	return bytesAt(from, int(sqlite3.Xsqlite3_column_bytes(h.tls, uintptr(s), at)))
}

// changes is how many rows the last statement inserted, updated or deleted.
func (h *handle) changes() int64 { return sqlite3.Xsqlite3_changes64(h.tls, h.db) }

// version is a number that this connection changes with each of its commits, and when a
// transaction begins that finds the file changed by another one.
func (h *handle) version() (n uint32, err error) {
	const room = 8
	at := h.tls.Alloc(room)
	defer h.tls.Free(room)
	err = h.fault(sqlite3.Xsqlite3_file_control(h.tls, h.db, h.main, sqlite3.SQLITE_FCNTL_DATA_VERSION, at))
	return *(*uint32)(address(at)), err
}

// interrupt ends what runs on the connection. Any goroutine may call it.
func (h *handle) interrupt() { sqlite3.Xsqlite3_interrupt(h.tls, h.db) }

// waitBusy sets how long a statement waits where another connection holds what it needs.
func (h *handle) waitBusy(d time.Duration) {
	sqlite3.Xsqlite3_busy_timeout(h.tls, h.db, int32(min(d.Milliseconds(), math.MaxInt32))) //nolint:gosec // bounded
}
