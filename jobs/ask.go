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

// ErrUntold: what was asked stands, but the daemons could not be notified; they find it
// within a minute.
var ErrUntold = errors.New("the daemons could not be told at once")

// Trigger asks for a pass of a job, of these regions or of all, from any machine:
// one of the daemons on the state begins it, once no other pass is in its way, also
// of a job that is paused. The error wraps budget.ErrInvalid for a region that
// does not exist and a note that is too long; with ErrUntold the request stands.
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
	return asked, notifyDaemons(ctx, in, j.Name)
}

// SetPause pauses a job, whose ticks are then skipped, with a note of why; passes
// under way go on. The pause that stood before is returned, nil for none; one with
// the same note stays as it is. The error wraps budget.ErrInvalid for a note that is
// too long.
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
	return before, notifyDaemons(ctx, in, j.Name)
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

// news is a document that says which jobs somebody asked something of, and when by
// the store's clock, in µs.
type news struct {
	Asked map[string]int64 `json:"asked"`
}

const (
	newsName = "@news"
	newsFor  = time.Hour // daemons look every few seconds
)

// notifyDaemons has the daemons visit a job soon. Those that miss it find the job with
// their next sweep. The error wraps ErrUntold.
func notifyDaemons(ctx context.Context, in State, job string) error {
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

// Answer is what has become of a request for a pass.
type Answer struct {
	Waiting bool        // no daemon has begun it
	Active  *ActivePass // it is under way; nil: it is not
	// Record is what became of it; nil: it is not over, or its record is not kept.
	Record *Record
}

// AnswerTo reads what has become of a request that [Trigger] made.
func AnswerTo(ctx context.Context, in State, j *Job, asked Request) (Answer, error) {
	views, err := Look(ctx, in, []*Job{j})
	if err != nil {
		return Answer{}, err
	}
	if slices.ContainsFunc(views[0].Requests, func(r Request) bool { return r.ID == asked.ID }) {
		return Answer{Waiting: true}, nil
	}
	for _, active := range views[0].Active {
		if active.Request == asked.ID {
			return Answer{Active: &active}, nil
		}
	}
	const skew = time.Hour // by which a daemon's clock, which ticks go by, may be behind the store's
	for pass, err := range Past(ctx, in, []string{j.Name}, asked.At.Add(-skew)) {
		if err != nil {
			return Answer{}, err
		}
		if pass.Request == asked.ID {
			return Answer{Record: &pass.Record}, nil
		}
	}
	return Answer{}, nil
}

// ErrUnderWay: a pass of the job is under way.
var ErrUnderWay = errors.New("a pass of it is under way")

// Forget removes all that is kept of a job: what it does, its history, its pause, what
// waits, where its runs are to go on. It is for a job that is configured nowhere any
// more: a daemon that follows it begins it anew. The error wraps ErrUnderWay where a
// pass is under way whose daemon was heard of in time; one that was not, and comes back,
// ends at its next heartbeat.
func Forget(ctx context.Context, in State, name string) error {
	for _, document := range []string{runSlots(name), name} { // what tells of the others goes last
		if err := forget(ctx, in, document, name); err != nil {
			return fmt.Errorf("forget job %s: %w", name, err)
		}
	}
	return nil
}

// forget removes a document of a job, unless a pass of that is under way.
func forget(ctx context.Context, in State, document, name string) error {
	for {
		found, err := in.Jobs(ctx, []string{document, name})
		if err != nil {
			return err
		}
		s, err := readDocument[state](name, found[1])
		if err != nil {
			return err
		}
		for _, c := range s.Active {
			if c.Until > found[1].Now {
				return fmt.Errorf("%w, %s, of %s: quotactl cancel %s ends it", ErrUnderWay, placeOf(c.Holder), formatTick(time.UnixMicro(c.Tick)), name)
			}
		}
		swapped, err := in.SwapJob(ctx, driver.JobSwap{Job: document, Version: found[0].Version, Remove: true})
		if err != nil || swapped {
			return err
		}
	}
}
