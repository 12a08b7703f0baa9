package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// exportPage is roughly how many entries one run of export.lua reads.
const exportPage = 1000

// rowStates are the states of entries, by their letter.
var rowStates = map[string]driver.RowState{
	"p": driver.RowPlain, "o": driver.RowOpen, "s": driver.RowSettled, "r": driver.RowReleased, "m": driver.RowMerged,
}

// stateLetter is the inverse of rowStates.
func stateLetter(state driver.RowState) string {
	for letter, one := range rowStates {
		if one == state {
			return letter
		}
	}
	return ""
}

// Export implements driver.Store: a page of the ledger in each run of a script. A row may
// be given more than once. No merging begins meanwhile; where one was under way, or the
// ledger was reset or replaced, the error wraps ErrUnavailable.
func (s *Store) Export(ctx context.Context, export driver.Export, to driver.LedgerWriter) error {
	if len(export.Counting.Limits) > 0 {
		return s.exportCounting(ctx, export, to)
	}
	var begun ledgerPage
	for cursor, first := "0", true; first || cursor != "0"; first = false {
		page, err := s.exportPage(ctx, export, cursor)
		if err != nil {
			return err
		}
		if first {
			begun = page
			if err := to.Head(page.head); err != nil {
				return err
			}
			if err := s.exportHistory(ctx, export, to); err != nil {
				return err
			}
		}
		if page.head.Ledger != begun.head.Ledger || page.epoch != begun.epoch {
			return fmt.Errorf("export %s from Redis: %w: the ledger was reset, replaced or merged meanwhile; export again", export.Budget, driver.ErrUnavailable)
		}
		for _, row := range page.rows {
			if err := to.Row(row); err != nil {
				return err
			}
		}
		cursor = page.next
	}
	return nil
}

// ledgerPage is the result of one run of export.lua.
type ledgerPage struct {
	head driver.LedgerHead
	rows []driver.Row
	next string
	// epoch is how far the ledger is merged and when it was reset; it must not change
	// within an export.
	epoch string
}

// exportPage reads one page of a ledger.
func (s *Store) exportPage(ctx context.Context, export driver.Export, cursor string) (page ledgerPage, err error) {
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return page, err
	}
	defer cancel()
	doing := "export " + export.Budget
	reply, err := s.run(ctx, s.scripts.Export, []string{s.key(export.Budget, "m"), s.key(export.Budget, "e")},
		arguments(exportArgs{cursor, exportPage})...).Slice()
	switch {
	case err != nil:
		return page, s.fault(doing, err)
	case !isPage(reply):
		return page, s.strange(doing, reply)
	}
	clock, last := number(reply[0]), numberAt(reply, 3)
	if clock-max(last, export.Now) > driver.ClockTolerance || export.Now-clock > driver.MaxLease.Microseconds() {
		return page, clockError(doing, clock)
	}
	if page.next = text(reply, 8); text(reply, 1) == "" {
		page.head.At = earlierClock(clock, export.Now)
		return page, nil
	}
	switch version := text(reply, 1); {
	case isFormat(version):
	case converts(version):
		if err := s.convert(ctx, export.Budget); err != nil {
			return page, err
		}
		return s.exportPage(ctx, export, cursor)
	default:
		return page, s.newer(export.Budget, version)
	}
	page.epoch = text(reply, 10)
	page.head = driver.LedgerHead{Ledger: text(reply, 2), Born: numberAt(reply, 4), Gone: numberAt(reply, 5), Unnoted: numberAt(reply, 11)}
	if s.kept(export.Budget) == 0 {
		page.head.Unnoted = max(page.head.Unnoted, numberAt(reply, 12))
	}
	page.head.At = max(earlierClock(clock, export.Now), last)
	page.head.Locks = standing(text(reply, 7), page.head.At)
	names, entries := splitNames(text(reply, 6)), list(reply, 9)
	for i := 0; i+1 < len(entries); i += 2 {
		row, ok := readRow(text(entries, i), text(entries, i+1), names)
		if !ok {
			return page, s.damaged(export.Budget, fmt.Sprintf("the entry %q of e is %q", text(entries, i), text(entries, i+1)))
		}
		if row.Score > page.head.Gone {
			row.ID = driver.MergedID(row.ID, page.head.Ledger)
			page.rows = append(page.rows, row)
		}
	}
	return page, nil
}

// isPage checks the form of a reply of export.lua.
func isPage(reply []any) bool {
	return tuple(count, isText, isText, count, count, count, isNames, isLocks, isText, listOf(isText), isText, count, count)(any(reply)) && len(list(reply, 9))%2 == 0
}

// readRow reads an entry as ledger.lua packs it:
// 1|op|asked|units|state|start|score|job|region|run, then what it drew from a hold, and |o if it
// was observed.
func readRow(id, packed string, operations []string) (r driver.Row, ok bool) {
	f := strings.Split(packed, "|")
	if len(f) < 10 || len(f) > 12 || f[0] != "1" {
		return r, false
	}
	r = driver.Row{ID: id, State: rowStates[f[4]], Calls: 1, Labels: driver.Labels{Job: f[7], Region: f[8], Run: f[9]}, Observed: len(f) > 10 && f[len(f)-1] == "o"}
	op, ok := whole(f[1])
	if !ok || op < 1 || op > int64(len(operations)) || r.State == "" {
		return r, false
	}
	r.Operation, _ = limit.CutPair(operations[op-1])
	for i, field := range []*int64{&r.Asked, &r.Units, nil, &r.Start, &r.Score} {
		if field == nil {
			continue
		}
		given := f[2+i]
		if given == "" && i > 0 { // units default to asked, score to start
			given = map[int]string{1: f[2], 4: f[5]}[i]
		}
		if *field, ok = whole(given); !ok || *field < 0 {
			return r, false
		}
	}
	if r.State == driver.RowMerged {
		r.Calls, r.Asked = r.Asked, r.Units
	}
	return r, true
}

// importRows adds rows of an exported ledger.
func (s *Store) importRows(ctx context.Context, c driver.Import) (answer driver.Imported, err error) {
	if err := c.Validate(); err != nil {
		return answer, err
	}
	run := s.newBatch(ctx, driver.Batch{Budget: c.Budget, Now: c.Now, Limits: c.Limits}, time.Now())
	run.mode, run.rows = importing, &c
	for _, row := range c.Rows {
		if row.State == driver.RowHistory {
			run.days = addDays(run.historyDays(), row.Start/historyDay)
		}
	}
	for settling := false; ; {
		done, err := run.step(ctx)
		switch {
		case err != nil:
			return driver.Imported{}, err
		case done && settling:
			return answer, nil
		case done:
			seen := run.looks[0]
			answer = driver.Imported{Now: run.decided.Now, Done: numberAt(seen, 0), Added: numberAt(seen, 1), Known: numberAt(seen, 2), Gone: numberAt(seen, 3)}
			if !c.Last || answer.Done < c.From+int64(len(c.Rows)) {
				return answer, nil
			}
			// Run once more for the merging and the buckets that the last rows left unfinished.
			c.From, c.Rows, settling = answer.Done, nil, true
		case ctx.Err() != nil:
			return driver.Imported{}, fmt.Errorf("import into %s in Redis: %w: out of time; import again: it continues from there", c.Budget, driver.ErrUnavailable)
		}
	}
}

// importRegistry returns had with the operations of rows, and the operations added.
func importRegistry(had registry, rows []driver.Row) (registry, []string) {
	var charges []charge
	for _, row := range rows {
		if row.State != driver.RowHistory {
			charges = append(charges, charge{row.Operation, row.Labels.Job})
		}
	}
	return had.withCharges(charges)
}

// importOf are the arguments of an import.
func importOf(c driver.Import, known registry) *importArgs {
	args := &importArgs{
		Export: c.Export, Ledger: c.Head.Ledger, At: c.Head.At, Born: c.Head.Born, Gone: c.Head.Gone, Unnoted: c.Head.Unnoted,
		Locks: []lockRow{}, From: c.From, Rows: make([]rowArgs, len(c.Rows)), Last: c.Last, Most: driver.MaxExports,
	}
	for _, k := range c.Head.Locks {
		args.Locks = append(args.Locks, lockRow{cmp.Or(k.Limit, wholeBudget), k.Until, k.Since, k.Why})
	}
	for i, r := range c.Rows {
		if r.State == driver.RowHistory {
			args.Rows[i] = rowArgs{ID: r.ID, State: "h", Units: r.Units, Calls: r.Calls, Start: r.Start, Score: r.Score, Labels: seriesOf(r.Operation, r.Labels), AsOf: r.AsOf}
			continue
		}
		args.Rows[i] = rowArgs{
			ID: r.ID, Op: known.number(r.Operation, r.Labels.Job), State: stateLetter(r.State), Asked: r.Asked, Units: r.Units, Calls: r.Calls,
			Start: r.Start, Score: r.Score, Labels: labelText(r.Labels), Observed: r.Observed, Pseudo: limit.IsPseudo(r.Operation),
		}
	}
	return args
}
