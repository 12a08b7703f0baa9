package jobs

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// Past reads the records of several jobs, given by name, the newest first over all of
// them, back to an instant. It reads only as far as the caller ranges; an error ends it.
func Past(ctx context.Context, in State, names []string, since time.Time) iter.Seq2[Pass, error] {
	return past(ctx, in, names, since, firstPage)
}

// past is Past; first is how many records of each job it reads at first.
func past(ctx context.Context, in State, names []string, since time.Time, first int) iter.Seq2[Pass, error] {
	return func(yield func(Pass, error) bool) {
		list := make([]*reader, 0, len(names))
		for _, name := range names {
			r := &reader{in: in, query: driver.JobHistoryQuery{Job: name}, page: first}
			if !since.IsZero() {
				r.query.Since = since.UnixMicro()
			}
			list = append(list, r)
		}
		for {
			newest := -1
			for i, r := range list {
				if err := r.fill(ctx); err != nil {
					yield(Pass{}, err)
					return
				}
				if len(r.found) > 0 && (newest < 0 || r.found[0].At > list[newest].found[0].At) {
					newest = i
				}
			}
			if newest < 0 {
				return
			}
			next, r := list[newest].found[0], list[newest]
			r.found = r.found[1:]
			record, err := readRecord(next.Text)
			if err != nil {
				err = fmt.Errorf("history of job %s: %w", r.query.Job, err)
			}
			if !yield(Pass{r.query.Job, record}, err) || err != nil {
				return
			}
		}
	}
}

// Page sizes. The first is small: of many jobs, a caller may want a few records each.
const (
	firstPage = 4
	maxPage   = 256
)

// reader reads a job's history page by page.
type reader struct {
	in    State
	query driver.JobHistoryQuery
	page  int // how many records the next page has
	found []driver.JobRecord
	// edge are the IDs of the records of the oldest instant read so far: the next
	// page begins at that instant, which may have more.
	edge []string
	end  bool
}

// fill reads the next page once the last is used up.
func (r *reader) fill(ctx context.Context) error {
	for len(r.found) == 0 && !r.end {
		r.query.Most = r.page + len(r.edge)
		found, err := r.in.JobHistory(ctx, r.query)
		if err != nil {
			return err
		}
		r.end = len(found) < r.query.Most
		for _, record := range found {
			if slices.Contains(r.edge, record.ID) {
				continue
			}
			r.found = append(r.found, record)
			if before := record.At + 1; r.query.Before != before {
				r.query.Before, r.edge = before, nil
			}
			r.edge = append(r.edge, record.ID)
		}
		r.page = min(2*r.page, maxPage)
	}
	return nil
}

// History reads up to most of a job's records, the newest first: those of ticks from
// since on and earlier than before. A zero time sets no bound.
func History(ctx context.Context, in State, job string, since, before time.Time, most int) ([]Record, error) {
	query := driver.JobHistoryQuery{Job: job, Most: most}
	if !since.IsZero() {
		query.Since = since.UnixMicro()
	}
	if !before.IsZero() {
		query.Before = before.UnixMicro()
	}
	found, err := in.JobHistory(ctx, query)
	if err != nil {
		return nil, err
	}
	list := make([]Record, 0, len(found))
	for _, kept := range found {
		record, err := readRecord(kept.Text)
		if err != nil {
			return nil, fmt.Errorf("history of job %s: %w", job, err)
		}
		list = append(list, record)
	}
	return list, nil
}
