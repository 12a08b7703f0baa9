package sqlitestore

import (
	"crypto/rand"
	"fmt"
	"math"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// ledger is one budget within a transaction, without its entries. The process caches the
// committed ledger until another process writes, which the version shows.
type ledger struct {
	c    *conn
	seen int64 // the store's epoch when the ledger was last read, or held against the file

	b       int64 // 0: not in the file yet
	name    string
	version int64

	born, last, newest int64
	gone               int64 // entries of scores up to here are forgotten
	n, units           int64 // of all entries in the file
	walkNo             int64
	anchor             anchor
	prunedAt, fresh    int64
	labelNo            int64
	merged             int64 // the ledger holds no id with a score up to here
	rowNo              int64 // the newest merged row's number
	idleAt             int64
	id, newestID       string // the ledger's random id, and the newest entry's id
	changes            int64  // charges, settlements and the like so far
	resetAt            int64  // when a reset began the ledger; 0: no reset did
	loss               loss
	hosts              hosts
	tables             driver.NotedTables
	plans              driver.Plans
	imports            driver.Imports
	holds              holds

	ops     map[string]int64
	opNames map[int64]string
	// pseudo: there is a pseudo-operation, which only one limit counts.
	pseudo  bool
	split   split
	windows map[string]*window
	labels  map[string]*label
	texts   map[int64]string // of labels, by number
	witness string           // the id of an entry that the ledger has at this version
	meters  map[string]*meter
	locks   map[string]lock // by the limit's name; "": the whole budget

	historyKept int64               // µs; below 0: no history
	unnoted     int64               // the history may lack charges of up to here
	noted       map[hourly]sum      // by this transaction, not written yet
	series      map[series]int64    // their numbers
	waiting     map[hourly]*waiting // sums of the present hour in the budget's row

	summed   int64   // no sum is of scores above this
	unsummed []int64 // lanes that may have entries for a further sum
	perSum   int
	hot      []byte // the row's form of totals and history, as last written
	cold     cold   // as in the file
}

// cold is what few charges change of a budget's row.
type cold struct {
	born                                     int64
	anchor                                   anchor
	prunedAt, labelNo, merged, rowNo, idleAt int64
	id                                       string
	resetAt                                  int64
	loss, hosts, tables, imports, split      string
	holds, plans                             string
	unnoted, summed                          int64
}

func (l *ledger) coldNow() cold {
	return cold{
		l.born, l.anchor, l.prunedAt, l.labelNo, l.merged, l.rowNo, l.idleAt, l.id, l.resetAt,
		l.loss.String(), l.hosts.String(), l.tables.String(), l.imports.String(), l.split.String(), l.holds.String(), l.plans.String(), l.unnoted, l.summed,
	}
}

const readBudget = `SELECT b, version, born, last, newest, gone, n, units, walk_no, boot_id, boot_offset, pruned_at, fresh, label_no, merged, row_no, idle_at, id, newest_id, changes, reset_at, loss, hosts, tables, imports, split, unnoted, hot, summed, holds, plans
	FROM budget WHERE name = ?`

// unchanged reports whether the file still has the ledger as it was last read or written.
func (l *ledger) unchanged(c *conn) (bool, error) {
	var version int64
	var name, id, newest string
	found, err := c.first("SELECT version, name, id, newest_id FROM budget WHERE b = ?", []any{l.b}, &version, &name, &id, &newest)
	// A file that replaced another one may have reached the same version.
	return found && version == l.version && name == l.name && id == l.id && newest == l.newestID, err
}

// readLedger reads a budget's ledger on c; known is the cached one, or nil. A budget that
// is not in the file has an empty ledger.
func readLedger(c *conn, name string, known *ledger) (*ledger, error) {
	if known != nil && known.b != 0 {
		same, err := known.unchanged(c)
		if err != nil {
			return nil, err
		}
		if same {
			known.c = c
			return known, nil
		}
	}
	l := &ledger{
		c: c, name: name, ops: map[string]int64{}, opNames: map[int64]string{}, windows: map[string]*window{},
		labels: map[string]*label{}, texts: map[int64]string{}, meters: map[string]*meter{}, locks: map[string]lock{},
		waiting: map[hourly]*waiting{}, series: map[series]int64{}, perSum: perSum,
	}
	var lost, seen, tables, imports, split, held, planned string
	found, err := c.first(readBudget, []any{name},
		&l.b, &l.version, &l.born, &l.last, &l.newest, &l.gone, &l.n, &l.units, &l.walkNo,
		&l.anchor.boot, &l.anchor.offset, &l.prunedAt, &l.fresh, &l.labelNo, &l.merged, &l.rowNo, &l.idleAt, &l.id, &l.newestID, &l.changes, &l.resetAt, &lost, &seen, &tables, &imports, &split, &l.unnoted, &l.hot, &l.summed, &held, &planned)
	if err != nil || !found {
		return l, err
	}
	if l.loss, err = parseLoss(lost); err == nil {
		l.hosts, err = parseHosts(seen)
	}
	if err == nil {
		l.tables, err = driver.ParseTables(tables)
	}
	if err == nil {
		l.imports, err = driver.ParseImports(imports)
	}
	if err == nil {
		l.split, err = parseSplit(split)
	}
	if err == nil {
		l.holds, err = parseHolds(held)
	}
	if err == nil {
		l.plans, err = driver.ParsePlans(planned)
	}
	var totals []hotTotal
	if err == nil {
		totals, l.waiting, err = decodeHot(l.hot)
	}
	if err != nil {
		return nil, fmt.Errorf("budget %s: %w: %w; %s", name, driver.ErrDamaged, err, adviceDamaged)
	}
	var no int64
	var text string
	err = c.each("SELECT no, name FROM operation WHERE b = ?", []any{l.b}, func() {
		l.know(no, text)
	}, &no, &text)
	if err != nil {
		return nil, err
	}
	if err := l.readWindows(totals); err != nil {
		return nil, err
	}
	if err := l.readMeters(); err != nil {
		return nil, err
	}
	if err := l.readLocks(); err != nil {
		return nil, err
	}
	l.cold = l.coldNow()
	return l, nil
}

// writeHot writes what each charge changes of a budget's row, and writeBudget all of it.
const writeHot = `UPDATE budget SET version = ?, last = ?, newest = ?, gone = ?, n = ?, units = ?, walk_no = ?, fresh = ?, newest_id = ?, changes = ?, hot = ? WHERE b = ?`

const writeBudget = `UPDATE budget SET version = ?, born = ?, last = ?, newest = ?, gone = ?, n = ?, units = ?, walk_no = ?,
	boot_id = ?, boot_offset = ?, pruned_at = ?, fresh = ?, label_no = ?, merged = ?, row_no = ?, idle_at = ?,
	id = ?, newest_id = ?, changes = ?, reset_at = ?, loss = ?, hosts = ?, tables = ?, imports = ?, split = ?, unnoted = ?, hot = ?, summed = ?, holds = ?, plans = ? WHERE b = ?`

// create inserts a new budget's row, which assigns its number.
func (l *ledger) create(now int64) error {
	l.born, l.prunedAt, l.id = now, now, rand.Text()
	_, err := l.c.first(`INSERT INTO budget(name, version, born, last, newest, gone, n, units, walk_no, boot_id, boot_offset, pruned_at, fresh, label_no, idle_at)
		VALUES (?, 0, ?, 0, 0, 0, 0, 0, 0, '', 0, ?, 0, 0, ?) RETURNING b`, []any{l.name, now, now, int64(math.MaxInt64)}, &l.b)
	return err
}

// write writes the ledger's row, and the windows and meters that changed.
func (l *ledger) write() error {
	l.version++
	if err := l.sumUp(); err != nil {
		return err
	}
	if err := l.writeWindows(); err != nil {
		return err
	}
	if err := l.writeHistory(); err != nil {
		return err
	}
	if err := l.writeMeters(); err != nil {
		return err
	}
	hot, err := l.encodeHot()
	if err != nil {
		return err
	}
	now := l.coldNow()
	if now == l.cold {
		return l.c.exec(writeHot, l.version, l.last, l.newest, l.gone, l.n, l.units, l.walkNo, l.fresh, l.newestID, l.changes, hot, l.b)
	}
	l.cold = now
	return l.c.exec(writeBudget, l.version, l.born, l.last, l.newest, l.gone, l.n, l.units, l.walkNo,
		l.anchor.boot, l.anchor.offset, l.prunedAt, l.fresh, l.labelNo, l.merged, l.rowNo, l.idleAt,
		l.id, l.newestID, l.changes, l.resetAt, now.loss, now.hosts, now.tables, now.imports, now.split, l.unnoted, hot, l.summed, now.holds, now.plans, l.b)
}

// moment is the time of a decision, in µs.
type moment struct {
	clock int64 // the earlier of the two clocks, not clamped
	now   int64 // clamped to last seen
	later int64 // the later of the two: charges count from there
}

// drains is the instant from which a bucket that changes now drains again. If the clocks
// are far apart, it waits until the earlier one has caught up.
func (m moment) drains() int64 {
	if m.later-m.now > driver.ClockTolerance {
		return m.later
	}
	return m.now
}

// enter checks the clock against the last instant seen and the caller's clock, and returns
// the time of the decision. Within one boot the boot clock is reliable, so enter ignores
// the caller's wall clock, which anybody may set.
func (l *ledger) enter(clock, caller int64, oneBoot bool) (moment, error) {
	if oneBoot {
		return moment{clock: clock, now: max(clock, l.last), later: clock}, nil
	}
	if clock-l.last > driver.ClockTolerance && clock-caller > driver.ClockTolerance || caller-clock > driver.MaxLease.Microseconds() {
		return moment{}, fmt.Errorf("budget %s: %w: it shows %d µs, the caller's %d, last seen %d: set the machine's clock right, or accept it",
			l.name, driver.ErrClock, clock, caller, l.last)
	}
	m := moment{clock: clock, later: max(clock, caller)}
	if clock-caller <= driver.ClockTolerance {
		m.clock = min(clock, caller)
	}
	m.now = max(m.clock, l.last)
	return m, nil
}

// keep records the time of a decision. It does not keep an anchor whose clock is behind
// the last instant seen: the wall clock it came from is wrong, as on a machine that has
// just booted and not synchronised its clock yet.
func (l *ledger) keep(clock, now int64, a anchor) {
	l.last = now
	if clock >= now {
		l.anchor = a
	}
}

// horizon is the instant up to which the ledger holds nothing at now.
func (l *ledger) horizon(now int64) int64 {
	h := now - driver.MinHeld
	for _, w := range l.windows {
		h = min(h, w.lower(now))
	}
	return h
}

// earliest is the first instant that at now is neither forgotten nor merged.
func (l *ledger) earliest(now int64) int64 { return max(l.gone, l.merged, l.horizon(now)) + 1 }

// crowded reports whether the ledger has as many operations as it may have.
func (l *ledger) crowded() bool {
	n := len(l.ops) - l.split.pairs
	for operation := range l.ops {
		if l.pseudo && limit.IsPseudo(operation) {
			n-- // pseudo-operations do not count toward the maximum
		}
	}
	if _, ok := l.ops[driver.OtherOperation]; ok {
		n--
	}
	return n >= driver.MaxOperations
}

// counted is the operation under which the ledger counts an operation: OtherOperation
// beyond MaxOperations. Their entries keep no other name, so an id used again for another
// of them, with the same units, counts as the same call.
func (l *ledger) counted(operation string) string {
	if _, ok := l.ops[operation]; !ok && l.crowded() && !limit.IsPseudo(operation) {
		return driver.OtherOperation
	}
	return operation
}

// number returns the number of an operation, or of its pair with the charge's job if that
// is counted apart. It assigns one to a new name. A pair's operation gets one too, and so
// takes a place among MaxOperations.
func (l *ledger) number(operation, job string) (no int64, err error) {
	counted := l.counted(operation)
	for _, name := range []string{counted, l.paired(counted, job)} {
		known := false
		if no, known = l.ops[name]; known {
			continue
		}
		no = int64(len(l.ops)) + 1
		if err := l.c.exec("INSERT INTO operation(b, no, name) VALUES (?, ?, ?)", l.b, no, name); err != nil {
			return 0, err
		}
		l.know(no, name)
	}
	return no, nil
}

// know notes an operation's number.
func (l *ledger) know(no int64, operation string) {
	l.ops[operation], l.opNames[no] = no, operation
	l.pseudo = l.pseudo || limit.IsPseudo(operation)
	if _, job := limit.CutPair(operation); job != "" {
		l.split.pairs++
	}
}

// covers reports whether a limit counts the entries under an operation's number. Those
// under OtherOperation may be of any operation without a number. Every limit that could
// cover one counts them, so that no limit is ever exceeded.
func (l *ledger) covers(lim limit.Limit, no int64) bool {
	name, _ := limit.CutPair(l.opNames[no])
	if lim.Covers(name) {
		return true
	}
	return name == driver.OtherOperation && l.crowded() && lim.CoversBeyond(func(name string) bool { _, ok := l.ops[name]; return ok })
}
