package driver

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/quotactl/quotactl/budget/limit"
)

// Export asks for everything that a ledger holds, to be imported into another store; or
// for a part of it, to be looked at.
type Export struct {
	Budget string
	Now    int64 // the caller's wall clock in µs, a witness
	// Counting, with limits, asks for the entries that count in these and for nothing
	// else. Such a read holds off no merging, disturbs no other export and writes nothing.
	Counting Counting
}

// Counting asks for the entries that any of these limits, none of them a bucket, counts at
// an instant (µs on the store's clock). Entries that count in none may be given too.
type Counting struct {
	Limits []limit.Limit
	At     int64
}

// Above is the least score, of all the limits, up to which a limit counts nothing.
func (c Counting) Above() int64 {
	above := c.At
	for _, l := range c.Limits {
		above = min(above, l.Window.Cut(c.At))
	}
	return above
}

// LedgerWriter receives an exported ledger: Head once, then Row for each entry, in no
// particular order. An error from either ends the export and is returned unchanged.
//
// An export that is Counting gives a head without locks. It calls Head again whenever
// entries were moved, settled or released since the call before: the rows that it gave
// before and those that it gives afterwards may then lack an entry, or have it twice.
type LedgerWriter interface {
	Head(LedgerHead) error
	Row(Row) error
}

// LedgerHead is what a ledger holds besides its entries. That of a budget without a ledger,
// which may have a history, has only At.
type LedgerHead struct {
	Ledger string // the ledger's id; empty: there is no ledger
	At     int64  // the store's clock at the export, in µs
	Born   int64  // the instant (µs) of the ledger's first decision
	Gone   int64  // the ledger has forgotten what finished up to this instant (µs)
	// Unnoted is the instant (µs) up to which the history may lack charges of the ledger. The
	// end of a reservation made up to then does not change the history.
	Unnoted int64
	Locks   []LockView // the locks that hold, fences included
}

// RowState says what kind of entry a Row is.
type RowState string

// The states of a Row.
const (
	RowPlain    RowState = "plain"
	RowOpen     RowState = "open" // a reservation that was neither settled nor released
	RowSettled  RowState = "settled"
	RowReleased RowState = "released"
	RowMerged   RowState = "merged" // several charges without ids, or a charge of a pseudo-operation
	// RowHistory: no entry, but what was charged in one hour, which Start and Score
	// begin. ID names the history of that day: it is the id of the ledger that charged first
	// in the day, and stays although another ledger of the budget charges later. Units and
	// calls are below 0 where the ledger ended reservations that an import had brought: the
	// rows of the history from which they come have their charges.
	RowHistory RowState = "history"
)

// Row is one entry of a ledger.
type Row struct {
	// ID is the charge's id. That of a merged row is " LEDGER/NUMBER", where LEDGER is the
	// id of the ledger that merged it; that of a pseudo-operation's charge begins with a
	// space too ([limit.DriftID], [limit.RecoveredID]).
	ID        string
	Operation string
	State     RowState
	Asked     int64 // units that the call asked for
	Units     int64 // units that count
	Calls     int64 // 1, except for a RowMerged
	Start     int64 // when it was charged, in µs
	Score     int64 // when it finishes, in µs; for an open reservation, the end of its lease
	Labels    Labels
	Observed  bool // only observe mode let it through
	// AsOf is the instant (µs) whose numbers a row of history has: when its own history's
	// export read it, whatever histories it came through since.
	AsOf int64
}

// Pseudo reports whether the row is a charge of a pseudo-operation.
func (r Row) Pseudo() bool { return limit.IsPseudo(r.Operation) }

// MaxImport is the most rows that an [Import] holds.
const MaxImport = 500

// Import adds rows of an exported ledger to a ledger. The answer is [Imported]. The rows
// of one export are imported in order, up to MaxImport at a time; the ledger notes how
// many it has imported, so that a repeated row adds nothing.
type Import struct {
	Budget string
	Now    int64         // the caller's wall clock in µs, a witness
	Limits []limit.Limit // all of the budget, as in Batch
	Export string        // names the export: 1 to 64 letters and digits
	Head   LedgerHead
	From   int64 // how many rows of the export come before Rows
	Rows   []Row
	// Last: no more rows follow. The store then rebuilds the buckets from the entries.
	// The last Import has at least one row, unless the export has no rows.
	Last bool
}

// Imported is the answer to an Import.
type Imported struct {
	Now int64 // the earlier clock
	// Done is how many rows of the export the ledger has imported so far. If it is below
	// From, rows are missing in between, and nothing was imported.
	Done int64
	// Of this Import's rows without those of history, Added counts those that were added or changed an entry,
	// Known those that the ledger already had, and Gone those that no longer count
	// anywhere.
	Added, Known, Gone int64
}

// Imports says how many rows of which exports a ledger has imported, the latest export
// last.
type Imports []struct {
	Export string
	Rows   int64
}

// Rows is how many rows of an export were imported, and whether the export is noted at
// all.
func (m Imports) Rows(export string) (rows int64, noted bool) {
	for _, one := range m {
		if one.Export == export {
			return one.Rows, true
		}
	}
	return 0, false
}

// Note notes how many rows of an export were imported. It keeps the latest MaxExports
// exports.
func (m *Imports) Note(export string, rows int64) {
	for i := range *m {
		if (*m)[i].Export == export {
			(*m)[i].Rows = rows
			return
		}
	}
	all := append(slices.Clone(*m), Imports{{export, rows}}...)
	*m = all[max(0, len(all)-MaxExports):]
}

// String is the notes as ParseImports reads them: "EXPORT ROWS EXPORT ROWS".
func (m Imports) String() string {
	var words []string
	for _, one := range m {
		words = append(words, one.Export, strconv.FormatInt(one.Rows, 10))
	}
	return strings.Join(words, " ")
}

// ParseImports reads what String wrote.
func ParseImports(text string) (Imports, error) {
	words := strings.Fields(text)
	if len(words)%2 != 0 {
		return nil, fmt.Errorf("the imports %q are not pairs of an export and a number", text)
	}
	var m Imports
	for pair := range slices.Chunk(words, 2) {
		rows, err := strconv.ParseInt(pair[1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("the imports %q: %w", text, err)
		}
		m = append(m, Imports{{pair[0], rows}}...)
	}
	return m, nil
}

// MaxExports is how many imported exports a ledger notes: the latest ones.
const MaxExports = 16

func (c Import) Doing() string { return "import into " + c.Budget }

// Validate checks the head and the number of rows. The error wraps ErrInvalid.
func (c Import) Validate() error {
	if err := c.Head.Validate(); err != nil {
		return err
	}
	switch {
	case len(c.Rows) > MaxImport:
		return fmt.Errorf("%w: %d rows: use at most %d", ErrInvalid, len(c.Rows), MaxImport)
	case c.Last && c.From > 0 && len(c.Rows) == 0:
		return fmt.Errorf("%w: the last part of an import is empty: mark the part before it as the last", ErrInvalid)
	}
	return nil
}

func (Import) answer(Imported) {}
func (Imported) changed()      {}

// MergedID is the id by which an export names a row of a ledger, given the id under which
// the ledger keeps it: a row that the ledger merged itself is named after the ledger, so
// that another ledger can keep it beside its own.
func MergedID(own, ledger string) string {
	if strings.HasPrefix(own, " ") && !strings.Contains(own, "/") {
		return " " + ledger + "/" + own[1:]
	}
	return own
}

// OwnID is the id under which a ledger keeps a row of an export; it undoes MergedID
// and OtherID.
func OwnID(id, ledger string) string {
	own, ok := strings.CutPrefix(id, " "+ledger+"/")
	if !ok {
		return id
	}
	if charge, other := strings.CutPrefix(own, otherMark); other {
		return charge
	}
	return " " + own
}

// OtherID is the id under which a ledger keeps a row whose id it has given to another
// charge. No caller can settle or replay it.
func OtherID(id string, head LedgerHead) string { return " " + head.Ledger + "/" + otherMark + id }

// otherMark sets the ids of OtherID apart from the numbers of merged rows.
const otherMark = ":"

// Validate checks the row's names, amounts and instants. The error wraps ErrInvalid or
// ErrTooManyUnits.
func (r Row) Validate() error {
	if r.State == RowHistory {
		return r.validateHistory()
	}
	merged := r.State == RowMerged
	item := Item{ID: r.ID, Operation: r.Operation, Units: r.Units, Labels: r.Labels}
	if merged || strings.HasPrefix(r.ID, " ") {
		item.ID = strings.ReplaceAll(strings.TrimPrefix(r.ID, " "), " ", "-") // a host's id follows that of a recovery
	}
	if r.Pseudo() {
		_, item.Operation, _ = strings.Cut(r.Operation, "/")
	}
	if len(item.ID) > 128 && strings.HasPrefix(r.ID, " ") {
		item.ID = item.ID[len(item.ID)-128:] // the ledger's id comes before the charge's
	}
	if err := item.Validate(); err != nil {
		return err
	}
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
	}
	switch {
	case !slices.Contains([]RowState{RowPlain, RowOpen, RowSettled, RowReleased, RowMerged}, r.State):
		return invalid("state %q: use plain, open, settled, released or merged", r.State)
	case merged && !strings.HasPrefix(r.ID, " "):
		return invalid("id %q: the id of a merged row begins with a space", r.ID)
	case strings.HasPrefix(r.ID, " ") && !strings.Contains(r.ID, "/"):
		return invalid("id %q: a row without an id of its own is named after a ledger or a limit", r.ID)
	case merged && rowDigits(r.ID) > maxRowDigits:
		return invalid("id %q: the number of a merged row has at most %d digits", r.ID, maxRowDigits)
	case !merged && r.Calls != 1:
		return invalid("%d calls: only a merged row has several", r.Calls)
	case r.Calls < 1 || r.Calls > limit.MaxUnits:
		return invalid("%d calls: use 1 to %d", r.Calls, limit.MaxUnits)
	case r.Asked < 0 || r.Asked > limit.MaxUnits:
		return fmt.Errorf("%w: %d units asked: use 0 to %d", ErrTooManyUnits, r.Asked, limit.MaxUnits)
	case r.Start < 0 || r.Score < r.Start || r.Score > maxInstant:
		return invalid("it finishes at %d µs and was charged at %d", r.Score, r.Start)
	}
	return nil
}

// validateHistory is Validate for a row of history.
func (r Row) validateHistory() error {
	item := Item{ID: r.ID, Operation: r.Operation, Labels: r.Labels}
	row, isRefusal := HistoryRow{Operation: r.Operation}.asRefusal()
	switch {
	case r.Pseudo():
		_, item.Operation, _ = strings.Cut(r.Operation, "/")
	case isRefusal: // of all operations, or of the whole budget
		item.Operation = cmp.Or(row.Operation, OtherOperation)
	}
	if err := item.Validate(); err != nil {
		return err
	}
	switch most := maxSum; {
	case row.Limit != "" && !ValidName(row.Limit):
		return fmt.Errorf("%w: a row of history of the limit %q", ErrInvalid, row.Limit)
	case !validLabel(r.ID, "") || len(r.ID) > 64:
		return fmt.Errorf("%w: id %q: a row of history is named after a ledger, by letters and digits, at most 64", ErrInvalid, r.ID)
	case r.Start < 0 || r.Start > maxInstant || r.Start != HourOf(r.Start) || r.Score != r.Start:
		return fmt.Errorf("%w: a row of history begins at %d µs, which begins no hour", ErrInvalid, r.Start)
	case r.AsOf < 0 || r.AsOf > maxInstant:
		return fmt.Errorf("%w: a row of history is as of %d µs", ErrInvalid, r.AsOf)
	case (r.Pseudo() || isRefusal) && min(r.Units, r.Calls) < 0: // others: see RowHistory
		return fmt.Errorf("%w: a row of history has %d units and %d calls of %s, which is never taken back", ErrInvalid, r.Units, r.Calls, r.Operation)
	case max(r.Units, -r.Units, r.Calls, -r.Calls) > most:
		return fmt.Errorf("%w: a row of history has %d units and %d calls: use at most %d of each", ErrTooManyUnits, r.Units, r.Calls, most)
	}
	return nil
}

// maxSum bounds the sums of a row of history.
const maxSum = 9 * limit.MaxUnits

// maxRowDigits bounds the number of a merged row, so that every store counts on from it
// exactly.
const maxRowDigits = 15

// rowDigits is how many digits the number in a merged row's id has, 0 if it has none.
func rowDigits(id string) int {
	_, number, _ := strings.Cut(id, "/")
	if strings.Trim(number, "0123456789") != "" {
		return 0
	}
	return len(number)
}

// ValidExport reports whether s can name an export: 1 to 64 letters and digits.
func ValidExport(s string) bool { return len(s) <= 64 && validLabel(s, "") }

// maxInstant is the latest instant, in µs, that every store counts exactly.
const maxInstant int64 = 1 << 52

// Validate checks the head's locks and instants. The error wraps ErrInvalid.
func (h LedgerHead) Validate() error {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
	}
	if h.Ledger != "" && !validLabel(h.Ledger, "") || len(h.Ledger) > 64 {
		return invalid("ledger %q: use letters and digits, at most 64", h.Ledger)
	}
	for _, at := range []int64{h.At, h.Born, h.Gone, h.Unnoted} {
		if at < 0 || at > maxInstant {
			return invalid("an instant of %d µs", at)
		}
	}
	if h.Born > h.At || h.Gone > h.At {
		return invalid("the ledger began at %d µs and has forgotten what finished up to %d, but was exported at %d", h.Born, h.Gone, h.At)
	}
	for _, k := range h.Locks {
		name := strings.TrimPrefix(k.Limit, fencePrefix)
		switch {
		case name != "" && !validLabel(name, "._-/"):
			return invalid("a lock on %q", k.Limit)
		case k.Until < 0 || k.Until > h.At+MaxLock || k.Since < 0 || k.Since > maxInstant:
			return invalid("a lock from %d µs to %d", k.Since, k.Until)
		case len(k.Why) > 200 || strings.ContainsFunc(k.Why, func(c rune) bool { return c < ' ' || c > '~' }):
			return invalid("the lock's reason %q: use printable ASCII, at most 200 bytes", k.Why)
		}
	}
	return nil
}
