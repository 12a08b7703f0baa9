package ledgerfile

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// Facts describe a file.
type Facts struct {
	Budget string
	Export string // names the file: a second import of it adds nothing
	Rows   int64  // of charges and limits, without History
	Head   driver.LedgerHead

	History int64 // rows of the budget's history
}

// count counts a row where it belongs.
func (f *Facts) count(row driver.Row) {
	if row.State == driver.RowHistory {
		f.History++
	} else {
		f.Rows++
	}
}

// Export writes a budget's ledger to a file. Errors are those of [driver.Store] and of w.
func Export(ctx context.Context, store driver.Store, budget string, now time.Time, w io.Writer) (Facts, error) {
	buffered := bufio.NewWriterSize(w, 1<<16)
	to := &writer{to: json.NewEncoder(buffered), facts: Facts{Budget: budget, Export: rand.Text()}}
	to.to.SetEscapeHTML(false)
	err := store.Export(ctx, driver.Export{Budget: budget, Now: now.UnixMicro()}, to)
	if err != nil {
		return to.facts, err
	}
	if err = to.to.Encode(endLine{to.facts.Rows + to.facts.History}); err == nil {
		err = buffered.Flush()
	}
	if err != nil {
		err = fmt.Errorf("write the export of %s: %w", budget, err)
	}
	return to.facts, err
}

// writer is a driver.LedgerWriter.
type writer struct {
	to    *json.Encoder
	facts Facts
}

func (w *writer) Head(head driver.LedgerHead) error {
	w.facts.Head = head
	line := headLine{formatVersion, w.facts.Budget, w.facts.Export, head.Ledger, instant(head.At), instant(head.Born), instant(head.Gone), instant(head.Unnoted), nil}
	for _, k := range head.Locks {
		line.Locks = append(line.Locks, lockLine{k.Limit, instant(k.Until), instant(k.Since), k.Why})
	}
	return w.encode(line)
}

func (w *writer) Row(row driver.Row) error {
	w.facts.count(row)
	return w.encode(newRowLine(row))
}

func (w *writer) encode(line any) error {
	if err := w.to.Encode(line); err != nil {
		return fmt.Errorf("write the export of %s: %w", w.facts.Budget, err)
	}
	return nil
}
