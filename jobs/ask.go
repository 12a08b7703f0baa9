package jobs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/suggest"
)

// maxRequests is how many requests of a job may wait.
const maxRequests = 100

// ErrUntold: what was asked stands, but the daemons could not be told; they come by
// it within a minute.
var ErrUntold = errors.New("the daemons could not be told at once")

// Trigger asks for a pass of a job, of these regions or of all, from any machine:
// one of the daemons on the state begins it, once no other pass is in its way, also
// of a job that is paused. The error wraps budget.ErrInvalid for a region that there
// is not and a note that is none; with ErrUntold the request stands.
func Trigger(ctx context.Context, in State, j *Job, regions []string, note string) (Request, error) {
	fail := func(err error) (Request, error) { return Request{}, fmt.Errorf("trigger job %s: %w", j.Name, err) }
	regions = slices.Clone(regions)
	for i, region := range regions {
		switch {
		case j.Regions[0] == "":
			return fail(fmt.Errorf("%w: it has no regions", budget.ErrInvalid))
		case !slices.Contains(j.Regions, region):
			return fail(fmt.Errorf("%w: it has no region %q; there is %s%s", budget.ErrInvalid, region,
				strings.Join(j.Regions, ", "), suggest.DidYouMean(region, slices.Clone(j.Regions))))
		case slices.Contains(regions[:i], region):
			return fail(fmt.Errorf("%w: region %s is named twice", budget.ErrInvalid, region))
		}
	}
	note, err := cleanNote(note)
	if err != nil {
		return fail(err)
	}
	asked := Request{ID: rand.Text(), By: asker(), Note: note, Regions: regions}
	err = changeDocument(ctx, in, j.Name, time.Now, j.History, func(s *state, at clocks) (edit, error) {
		if len(s.Requests) >= maxRequests {
			return edit{}, fmt.Errorf("trigger job %s: %d requests wait already; is a daemon running?", j.Name, maxRequests)
		}
		asked.At = InstantOf(at.store)
		s.Requests = append(s.Requests, asked)
		return edit{}, nil
	})
	if err != nil {
		return Request{}, err
	}
	return asked, tellDaemons(ctx, in, j.Name)
}

// SetPause pauses a job, whose ticks are then skipped, with a note of why; passes
// under way go on. The pause that stood before is returned, nil for none; one with
// the same note stays as it is. The error wraps budget.ErrInvalid for a note that is
// none.
func SetPause(ctx context.Context, in State, j *Job, note string) (set Pause, before *Pause, err error) {
	if note, err = cleanNote(note); err != nil {
		return Pause{}, nil, fmt.Errorf("pause job %s: %w", j.Name, err)
	}
	err = changeDocument(ctx, in, j.Name, time.Now, j.History, func(s *state, at clocks) (edit, error) {
		if before = s.Pause; before != nil && before.Note == note {
			set = *before
			return edit{}, errStays
		}
		set = Pause{Note: note, By: asker(), At: InstantOf(at.store)}
		s.Pause = &set
		return edit{}, nil
	})
	return set, before, err
}

// EndPause lets a job go on; the pause that stood is returned, nil for none. With
// ErrUntold it has ended.
func EndPause(ctx context.Context, in State, j *Job) (before *Pause, err error) {
	err = changeDocument(ctx, in, j.Name, time.Now, j.History, func(s *state, _ clocks) (edit, error) {
		if before = s.Pause; before == nil {
			return edit{}, errStays
		}
		s.Pause = nil
		return edit{}, nil
	})
	if err != nil || before == nil {
		return nil, err
	}
	return before, tellDaemons(ctx, in, j.Name)
}

// maxNote is how long a note may be, in characters.
const maxNote = 500

// cleanNote is a note on one line, without what a terminal would not show.
func cleanNote(note string) (string, error) {
	note = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.Join(strings.Fields(note), " "))
	if n := utf8.RuneCountInString(note); n > maxNote {
		return "", fmt.Errorf("%w: its note has %d characters; use at most %d", budget.ErrInvalid, n, maxNote)
	}
	return note, nil
}

// History reads a job's records, the newest first: those of ticks from since on and
// before an instant, or the newest where that is zero, at most so many.
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

// news is a document that says which jobs somebody asked something of, and when by
// the store's clock, in µs.
type news struct {
	Asked map[string]int64 `json:"asked"`
}

const (
	newsName = "@news"
	newsFor  = time.Hour // daemons look every few seconds
)

// tellDaemons has the daemons look at a job soon. Those that do not hear it come by
// with their next look at all jobs. The error wraps ErrUntold.
func tellDaemons(ctx context.Context, in State, job string) error {
	err := changeDocument(ctx, in, newsName, time.Now, 0, func(n *news, at clocks) (edit, error) {
		if n.Asked == nil {
			n.Asked = map[string]int64{}
		}
		for name, asked := range n.Asked {
			if asked < at.now-newsFor.Microseconds() {
				delete(n.Asked, name)
			}
		}
		n.Asked[job] = max(at.now, n.Asked[job]+1)
		return edit{}, nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUntold, err)
	}
	return nil
}

// asker is who asks for something, for people: user and host.
func asker() string {
	name := "somebody"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		return name
	}
	return name + "@" + host
}

// text says who asked for a pass, and why.
func (r Request) text() string {
	if r.Note == "" {
		return "asked for by " + r.By
	}
	return "asked for by " + r.By + ": " + r.Note
}
