package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// exportCounting is Export of the entries that limits count: those zsets that may hold some,
// from the score on that counts, a page in each run of a script that writes nothing.
func (s *Store) exportCounting(ctx context.Context, export driver.Export, to driver.LedgerWriter) error {
	for came, begun := "", (*entriesPage)(nil); begun == nil || came != ""; {
		page, err := s.entriesPage(ctx, export, came)
		if err == nil && page.next != "" && !further(came, page.next) { // else it might never end
			err = s.strange("read the ledger of "+export.Budget, []any{page.next})
		}
		if err != nil {
			return err
		}
		if begun == nil || begun.head.Ledger != page.head.Ledger || begun.moves != page.moves {
			if err := to.Head(page.head); err != nil {
				return err
			}
			begun = &page
		}
		for _, row := range page.rows {
			if err := to.Row(row); err != nil {
				return err
			}
		}
		came = page.next
	}
	return nil
}

// entriesPage is the result of one run of entries.lua.
type entriesPage struct {
	head  driver.LedgerHead
	rows  []driver.Row
	moves int64 // how often entries were moved, settled or released so far
	next  string
}

// further reports whether a page ended, at the place of a zset and a score, after the end of
// the page before.
func further(before, end string) bool {
	place, score, _ := strings.Cut(end, " ")
	was, at, _ := strings.Cut(before, " ")
	return before == "" || cmp.Or(cmp.Compare(number(place), number(was)), cmp.Compare(number(score), number(at))) > 0
}

// entriesPage reads one page of entries, from where the page before ended.
func (s *Store) entriesPage(ctx context.Context, export driver.Export, came string) (page entriesPage, err error) {
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return page, err
	}
	defer cancel()
	doing := "read the ledger of"
	for {
		r := s.registry(export.Budget)
		a, err := s.ask(ctx, doing, export.Budget, s.scripts.Entries, s.keys(export.Budget, r), func(time.Time) []any {
			return arguments(entriesArgs{ledgerArgs{Sig: r.sig, Now: export.Now}, min(s.maxSteps, exportPage), r.places(export.Counting.Limits), export.Counting.Above(), came})
		})
		switch {
		case err != nil:
			return page, err
		case a.status == statusDone:
			return s.readEntries(export.Budget, a, r)
		case ctx.Err() != nil:
			return page, fmt.Errorf("%s %s in Redis: %w: its operations changed as it was read; read again", doing, export.Budget, driver.ErrUnavailable)
		}
	}
}

// readEntries reads a reply of entries.lua.
func (s *Store) readEntries(name string, a answer, r registry) (page entriesPage, err error) {
	if !entriesRest(a.rest) || len(list(a.rest, 5))%2 != 0 {
		return page, s.strange("read the ledger of "+name, a.rest)
	}
	page.head = driver.LedgerHead{Ledger: text(a.rest, 1), At: numberAt(a.rest, 0), Born: numberAt(a.rest, 2), Gone: numberAt(a.rest, 3)}
	page.moves, page.next = numberAt(a.rest, 4), text(a.rest, 6)
	entries := list(a.rest, 5)
	for i := 0; i < len(entries); i += 2 {
		row, ok := readRow(text(entries, i), text(entries, i+1), r.names)
		if !ok {
			return page, s.damaged(name, fmt.Sprintf("the entry %q of e is %q", text(entries, i), text(entries, i+1)))
		}
		if row.Score > page.head.Gone {
			row.ID = driver.MergedID(row.ID, page.head.Ledger)
			page.rows = append(page.rows, row)
		}
	}
	return page, nil
}

// places are those of the zsets, among a ledger's, that hold what one of the limits may
// count: entries of 0 units count only in limits of calls.
func (r registry) places(limits []limit.Limit) []int {
	units, calls := map[int]bool{}, map[int]bool{}
	for _, l := range limits {
		for _, no := range r.covered(l) {
			units[no] = true
			calls[no] = calls[no] || l.Counts == limit.CountCalls
		}
	}
	list := []int{}
	for no := range units {
		list = append(list, 3*no-2)
		if calls[no] {
			list = append(list, 3*no-1)
		}
	}
	slices.Sort(list)
	return list
}
