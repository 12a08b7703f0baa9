package ledgerfile

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// ErrNotExport means that a file was not written by an export, or not to its end.
var ErrNotExport = errors.New("not a whole export")

// maxLine is how long a line may be, in bytes: the first one has a budget's locks.
const maxLine = 1 << 20

// mostUnits is how many units, and calls, the rows of a file add up to at most: every
// store counts that exactly.
const mostUnits = 9 * limit.MaxUnits

// farthest is how long after the export a row may finish, in µs: the longest lease, of a charge
// whose time came from a clock that was ahead by as much.
const farthest = 2 * int64(driver.MaxLease/time.Microsecond)

// Check reads a file to its end and returns its description. If the file is not as Export
// writes it, the error wraps ErrNotExport and names the line.
func Check(r io.Reader) (Facts, error) {
	f, err := open(r)
	for err == nil {
		_, err = f.next()
	}
	if errors.Is(err, io.EOF) {
		return f.facts, nil
	}
	return Facts{}, err
}

// file is a file that is being read.
type file struct {
	lines   *bufio.Scanner
	no      int64
	version int
	facts   Facts // of the rows those read so far
	units   int64 // of the rows read so far
	calls   int64 // likewise
	history map[series]sum
}

// series is what the history adds up: an hour's charges of an operation, a job and a region.
type series struct {
	hour  int64
	names [3]string
}

type sum struct{ units, calls int64 }

// open reads the first line.
func open(r io.Reader) (*file, error) {
	f := &file{lines: bufio.NewScanner(r), history: map[series]sum{}}
	f.lines.Buffer(make([]byte, 0, 1<<16), maxLine)
	line, err := f.line()
	if err != nil {
		return nil, err
	}
	var head headLine
	if json.Unmarshal(line, &head) != nil || head.Version == 0 {
		return nil, f.wrong("it does not begin like an export: write it with quotactl export BUDGET")
	}
	if head.Version > formatVersion {
		return nil, f.wrong(fmt.Sprintf("it has version %d, this program reads up to %d: use the quotactl that wrote it, or a newer one", head.Version, formatVersion))
	}
	if err := strict(line, &head); err != nil {
		return nil, f.wrong(err.Error())
	}
	f.facts = Facts{Budget: head.Budget, Export: head.Export, Head: driver.LedgerHead{
		Ledger: head.Ledger, At: int64(head.At), Born: int64(head.Born), Gone: int64(head.Gone), Unnoted: int64(head.Unnoted),
	}}
	if f.version = head.Version; f.version < 2 { // without history
		f.facts.Head.Unnoted = f.facts.Head.At
	}
	for _, k := range head.Locks {
		f.facts.Head.Locks = append(f.facts.Head.Locks, driver.LockView{Limit: k.Limit, Until: int64(k.Until), Since: int64(k.Since), Why: k.Why})
	}
	switch {
	case !driver.ValidBudget(head.Budget):
		return nil, f.wrong(fmt.Sprintf("budget %q: write upstream/credential", head.Budget))
	case !driver.ValidExport(head.Export):
		return nil, f.wrong(fmt.Sprintf("export %q: use 1 to 64 letters and digits", head.Export))
	}
	if err := f.facts.Head.Validate(); err != nil {
		return nil, f.wrong(err.Error())
	}
	return f, nil
}

// next is the next row; io.EOF after the last one.
func (f *file) next() (driver.Row, error) {
	line, err := f.line()
	if err != nil {
		return driver.Row{}, err
	}
	if bytes.HasPrefix(line, []byte(`{"rows":`)) {
		return driver.Row{}, f.end(line)
	}
	var one rowLine
	if err := strict(line, &one); err != nil {
		return driver.Row{}, f.wrong(err.Error())
	}
	row, err := one.row(f.version, f.facts.Head.At)
	if err == nil {
		err = row.Validate()
	}
	if err != nil {
		return driver.Row{}, f.wrong(err.Error())
	}
	if max(row.Score, row.AsOf) > f.facts.Head.At+farthest {
		return driver.Row{}, f.wrong("it finishes, or its numbers are of, more than two days after the export")
	}
	f.facts.count(row)
	if row.State != driver.RowHistory { // no total counts what was spent
		f.units, f.calls = f.units+row.Units, f.calls+row.Calls
	} else {
		one := series{row.Start, [3]string{row.Operation, row.Labels.Job, row.Labels.Region}}
		s := f.history[one]
		if s = (sum{s.units + row.Units, s.calls + row.Calls}); max(s.units, -s.units, s.calls, -s.calls) > limit.MaxUnits {
			return driver.Row{}, f.wrong(fmt.Sprintf("its history up to here has more than %d units or calls of %s in one hour", limit.MaxUnits, row.Operation))
		}
		f.history[one] = s
	}
	if f.units > mostUnits || f.calls > mostUnits {
		return driver.Row{}, f.wrong(fmt.Sprintf("its rows up to here add up to more than %d units or calls", mostUnits))
	}
	return row, nil
}

// end reads the last line.
func (f *file) end(line []byte) error {
	var end endLine
	if err := strict(line, &end); err != nil {
		return f.wrong(err.Error())
	}
	if rows := f.facts.Rows + f.facts.History; end.Rows != rows {
		return f.wrong(fmt.Sprintf("it has %d rows, but its last line says %d", rows, end.Rows))
	}
	for one, s := range f.history { // rows below 0 take back what others of the file have
		if min(s.units, s.calls) < 0 {
			return f.wrong(fmt.Sprintf("its history has %d units and %d calls of %s in the hour from %s, less than none", s.units, s.calls, one.names[0], time.UnixMicro(one.hour).UTC().Format(time.RFC3339)))
		}
	}
	if f.lines.Scan() {
		f.no++
		return f.wrong("there are more lines after its last one")
	}
	if err := f.lines.Err(); err != nil {
		return fmt.Errorf("read the export: %w", err)
	}
	return io.EOF
}

func (f *file) line() ([]byte, error) {
	if f.lines.Scan() {
		f.no++
		return f.lines.Bytes(), nil
	}
	if err := f.lines.Err(); err != nil && !errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("read the export: %w", err)
	} else if err != nil {
		f.no++
		return nil, f.wrong("the line is too long")
	}
	f.no++
	return nil, f.wrong("it ends here, before its last line: export again")
}

func (f *file) wrong(what string) error {
	return fmt.Errorf("%w: line %d: %s", ErrNotExport, f.no, what)
}

// strict parses one JSON object and rejects unknown members.
func strict(line []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	var kind *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch _, more := d.Token(); {
	case err == nil && errors.Is(more, io.EOF):
		return nil
	case errors.As(err, &kind) && kind.Field != "":
		return fmt.Errorf("%q has the wrong type: %s", kind.Field, kind.Value)
	case err == nil, kind != nil, errors.As(err, &syntax), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the line is not one JSON object")
	}
	return err
}
