package sqlitestore

import (
	"crypto/rand"
	"fmt"
	"math"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// ledger is what is known of one budget within a transaction, but for its
// entries. As committed it is kept until another process writes: the version
// tells.
type ledger struct {
	c *conn

	b       int64 // 0: not in the file yet
	name    string
	version int64

	born, last, newest int64
	gone               int64 // entries of scores up to here are forgotten
	n, units           int64 // of all entries that lie in the file
	walkNo             int64
	anchor             anchor
	prunedAt, fresh    int64
	labelNo            int64
	merged             int64 // no id of a score up to here is held
	rowNo              int64 // the newest merged row's number
	idleAt             int64
	id, newestID       string // the ledger's own, random, and the newest entry's
	changes            int64  // charges, settlements and the like so far
	resetAt            int64  // when a reset began it; 0: none did
	loss               loss
	hosts              hosts
	imports            driver.Imports

	ops     map[string]int64
	opNames map[int64]string
	// pseudo: some operation is a pseudo-operation, which counts in one limit alone.
	pseudo  bool
	windows map[string]*window
	labels  map[string]*label
	witness string // the id of an entry that was there as of the version
	meters  map[string]*meter
	locks   map[string]lock // by the limit's name; empty: the budget
}

const readBudget = `SELECT b, version, born, last, newest, gone, n, units, walk_no, boot_id, boot_offset, pruned_at, fresh, label_no, merged, row_no, idle_at, id, newest_id, changes, reset_at, loss, hosts, imports
	FROM budget WHERE name = ?`

// readLedger reads a budget's ledger on c; known is the one last seen, or nil.
// A budget that is not in the file gives an empty one.
func readLedger(c *conn, name string, known *ledger) (*ledger, error) {
	l := &ledger{
		c: c, name: name, ops: map[string]int64{}, opNames: map[int64]string{}, windows: map[string]*window{},
		labels: map[string]*label{}, meters: map[string]*meter{}, locks: map[string]lock{},
	}
	var lost, seen, imports string
	found, err := c.first(readBudget, []any{name},
		&l.b, &l.version, &l.born, &l.last, &l.newest, &l.gone, &l.n, &l.units, &l.walkNo,
		&l.anchor.boot, &l.anchor.offset, &l.prunedAt, &l.fresh, &l.labelNo, &l.merged, &l.rowNo, &l.idleAt, &l.id, &l.newestID, &l.changes, &l.resetAt, &lost, &seen, &imports)
	if err != nil || !found {
		return l, err
	}
	// A file that took another's place may have come to the same version.
	if known != nil && known.b == l.b && known.version == l.version && known.id == l.id && known.newestID == l.newestID {
		known.c = c
		return known, nil
	}
	if l.loss, err = parseLoss(lost); err == nil {
		l.hosts, err = parseHosts(seen)
	}
	if err == nil {
		l.imports, err = driver.ParseImports(imports)
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
	if err := l.readWindows(); err != nil {
		return nil, err
	}
	if err := l.readMeters(); err != nil {
		return nil, err
	}
	if err := l.readLocks(); err != nil {
		return nil, err
	}
	return l, nil
}

const writeBudget = `UPDATE budget SET version = ?, born = ?, last = ?, newest = ?, gone = ?, n = ?, units = ?, walk_no = ?,
	boot_id = ?, boot_offset = ?, pruned_at = ?, fresh = ?, label_no = ?, merged = ?, row_no = ?, idle_at = ?,
	id = ?, newest_id = ?, changes = ?, reset_at = ?, loss = ?, hosts = ?, imports = ? WHERE b = ?`

// create gives a new budget its row and with it its number.
func (l *ledger) create(now int64) error {
	l.born, l.prunedAt, l.id = now, now, rand.Text()
	_, err := l.c.first(`INSERT INTO budget(name, version, born, last, newest, gone, n, units, walk_no, boot_id, boot_offset, pruned_at, fresh, label_no, idle_at)
		VALUES (?, 0, ?, 0, 0, 0, 0, 0, 0, '', 0, ?, 0, 0, ?) RETURNING b`, []any{l.name, now, now, int64(math.MaxInt64)}, &l.b)
	return err
}

// write writes what changed.
func (l *ledger) write() error {
	l.version++
	err := l.c.exec(writeBudget, l.version, l.born, l.last, l.newest, l.gone, l.n, l.units, l.walkNo,
		l.anchor.boot, l.anchor.offset, l.prunedAt, l.fresh, l.labelNo, l.merged, l.rowNo, l.idleAt,
		l.id, l.newestID, l.changes, l.resetAt, l.loss.String(), l.hosts.String(), l.imports.String(), l.b)
	if err != nil {
		return err
	}
	if err := l.writeWindows(); err != nil {
		return err
	}
	return l.writeMeters()
}

// moment is the time of a decision, in µs.
type moment struct {
	clock int64 // the earlier of the two clocks, not clamped
	now   int64 // clamped to last seen
	later int64 // the later of the two: what is charged counts from there
}

// drains is from when on a bucket drains again that changes now: where the clocks
// are far apart not until the earlier one has caught up.
func (m moment) drains() int64 {
	if m.later-m.now > driver.ClockTolerance {
		return m.later
	}
	return m.now
}

// enter holds the clock against its witness and gives the time of the decision.
// Within one boot the time that has passed since last seen is known, so that a
// caller's wall clock, which anybody may set, is no witness.
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

// keep takes over the time of a decision. An anchor by which the clock stands
// behind last seen is not kept: the wall clock it was taken from is wrong, as on
// a machine that has just started and not yet asked for the time.
func (l *ledger) keep(clock, now int64, a anchor) {
	l.last = now
	if clock >= now {
		l.anchor = a
	}
}

// horizon is the instant up to which nothing is held at now.
func (l *ledger) horizon(now int64) int64 {
	h := now - driver.MinHeld
	for _, w := range l.windows {
		h = min(h, w.lower(now))
	}
	return h
}

// earliest is the first instant that is neither forgotten at now nor merged.
func (l *ledger) earliest(now int64) int64 { return max(l.gone, l.merged, l.horizon(now)) + 1 }

// crowded reports whether every number that operations may have is taken.
func (l *ledger) crowded() bool {
	n := len(l.ops)
	for operation := range l.ops {
		if l.pseudo && limit.IsPseudo(operation) {
			n-- // kept apart however many there are
		}
	}
	if _, ok := l.ops[driver.OtherOperation]; ok {
		n--
	}
	return n >= driver.MaxOperations
}

// counted is the operation under which one is counted. The entries of those
// beyond MaxOperations keep no other name: an id used again for another of
// them, of the same units, counts as the same call.
func (l *ledger) counted(operation string) string {
	if _, ok := l.ops[operation]; !ok && l.crowded() && !limit.IsPseudo(operation) {
		return driver.OtherOperation
	}
	return operation
}

// number is the number of an operation, given if it has none yet.
func (l *ledger) number(operation string) (int64, error) {
	operation = l.counted(operation)
	if no, ok := l.ops[operation]; ok {
		return no, nil
	}
	no := int64(len(l.ops)) + 1
	if err := l.c.exec("INSERT INTO operation(b, no, name) VALUES (?, ?, ?)", l.b, no, operation); err != nil {
		return 0, err
	}
	l.know(no, operation)
	return no, nil
}

// know notes an operation's number.
func (l *ledger) know(no int64, operation string) {
	l.ops[operation], l.opNames[no] = no, operation
	l.pseudo = l.pseudo || limit.IsPseudo(operation)
}

// covers reports whether a limit counts what stands under an operation's number.
// What stands under OtherOperation may be any operation that has no number:
// limits that could cover one count it, so that none is ever passed.
func (l *ledger) covers(limit limit.Limit, no int64) bool {
	name := l.opNames[no]
	if limit.Covers(name) {
		return true
	}
	return name == driver.OtherOperation && l.crowded() && limit.CoversBeyond(func(name string) bool { _, ok := l.ops[name]; return ok })
}
