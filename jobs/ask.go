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

// ErrUntold means that the request was stored, but the daemons could not be notified;
// they find it within a minute.
var ErrUntold = errors.New("the daemons could not be notified at once")

// Trigger asks for a pass of a job, from any machine; with no regions, for all of them.
// One of the daemons on the state starts it as soon as no other pass is in its way, even
// if the job is paused. The error wraps budget.ErrInvalid if a region does not exist or
// is named twice, if the note is too long, or if cron starts the job. With ErrUntold the request is stored all
// the same.
func Trigger(ctx context.Context, in State, j *Job, regions []string, note string) (Request, error) {
	fail := func(err error) (Request, error) { return Request{}, fmt.Errorf("trigger job %s: %w", j.Name, err) }
	if j.StartedBy == StartedByCron {
		return fail(fmt.Errorf("%w: cron starts it, so no daemon can: run its command by quotactl meter --job %s", budget.ErrInvalid, j.Name))
	}
	regions = slices.Clone(regions)
	for i, region := range regions {
		switch {
		case j.Regions[0] == "":
			return fail(fmt.Errorf("%w: it has no regions", budget.ErrInvalid))
		case !slices.Contains(j.Regions, region):
			return fail(fmt.Errorf("%w: it has no region %q; its regions are %s%s", budget.ErrInvalid, region,
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
			return edit{}, fmt.Errorf("trigger job %s: %d requests are already waiting; is a daemon running?", j.Name, maxRequests)
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

// SetPause pauses a job, with a note that says why: its ticks are skipped, passes that wait
// for units do not go on, and passes under way continue. It returns the pause that was in
// force before, nil for none, and the passes that do not go on; a pause with the same note is
// left unchanged. The error wraps budget.ErrInvalid if the note is too long.
func SetPause(ctx context.Context, in State, j *Job, note string) (set Pause, before *Pause, dropped []DeferredPass, err error) {
	if note, err = cleanNote(note); err != nil {
		return Pause{}, nil, nil, fmt.Errorf("pause job %s: %w", j.Name, err)
	}
	err = changeDocument(ctx, in, j.Name, time.Now, j.History, func(s *state, at clocks) (edit, error) {
		dropped = nil
		if before = s.Pause; before != nil && before.Note == note {
			set = *before
			return edit{}, errStays
		}
		done := j.judged(s, at)
		set = Pause{Note: note, By: asker(), At: InstantOf(at.store)}
		s.Pause = &set
		for _, d := range s.Deferred {
			dropped = append(dropped, d.pass())
		}
		return edit{records: append(done.kept(), s.dropAll(ReasonPaused, pausedText(set)).kept()...)}, nil
	})
	return set, before, dropped, err
}

// EndPause resumes a job. It returns the pause that was in force, nil for none. With
// ErrUntold the pause has ended all the same.
func EndPause(ctx context.Context, in State, j *Job) (before *Pause, err error) {
	err = changeDocument(ctx, in, j.Name, time.Now, j.History, func(s *state, at clocks) (edit, error) {
		if before = s.Pause; before == nil {
			return edit{}, errStays
		}
		done := j.judged(s, at)
		s.Pause = nil
		return edit{records: done.kept()}, nil
	})
	if err != nil || before == nil {
		return nil, err
	}
	return before, notifyDaemons(ctx, in, j.Name)
}

// maxNote is how long a note may be, in characters.
const maxNote = 500

// cleanNote puts a note on one line and replaces characters that a terminal cannot show.
func cleanNote(note string) (string, error) {
	note = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.Join(strings.Fields(note), " "))
	if n := utf8.RuneCountInString(note); n > maxNote {
		return "", fmt.Errorf("%w: the note has %d characters; use at most %d", budget.ErrInvalid, n, maxNote)
	}
	return note, nil
}

// news is a document that records which jobs an operator asked something of, and when
// (µs, by the store's clock).
type news struct {
	Asked map[string]int64 `json:"asked"`
}

const (
	newsName = "@news"
	newsFor  = time.Hour // daemons poll every few seconds
)

// notifyDaemons has the daemons visit a job soon. A daemon that misses the notice finds
// the job in its next sweep. The error wraps ErrUntold.
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

// asker names who asks, for people: user and host.
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
		return "requested by " + r.By
	}
	return "requested by " + r.By + ": " + r.Note
}

// Answer says what happened to a request for a pass.
type Answer struct {
	Waiting bool        // no daemon has started it yet
	Active  *ActivePass // the pass under way; nil if there is none
	// Record is the result; nil while the pass is not over, or when its record is no
	// longer kept.
	Record *Record
}

// AnswerTo reads what happened to a request that [Trigger] made.
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
	const skew = time.Hour // ticks go by the daemon's clock, which may be this far behind the store's
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

// ErrUnderWay means that a pass of the job is under way.
var ErrUnderWay = errors.New("a pass of the job is under way")

// Forget removes everything that is kept about a job: its state, history, pause, waiting
// ticks and requests, and checkpoints. It is for a job that no configuration contains any
// more; a daemon that still follows the job starts it afresh. The error wraps ErrUnderWay
// if a pass is under way and its daemon renewed the claim in time. If the claim is
// overdue and the daemon comes back, the pass ends at its next heartbeat.
func Forget(ctx context.Context, in State, name string) error {
	for _, document := range []string{runSlots(name), name} { // the job's own document goes last
		if err := forget(ctx, in, document, name); err != nil {
			return fmt.Errorf("forget job %s: %w", name, err)
		}
	}
	return nil
}

// forget removes a document of a job, unless a pass of the job is under way.
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
				return fmt.Errorf("%w, %s, for tick %s: end it with quotactl cancel %s", ErrUnderWay, placeOf(c.Holder), formatTick(time.UnixMicro(c.Tick)), name)
			}
		}
		swapped, err := in.SwapJob(ctx, driver.JobSwap{Job: document, Version: found[0].Version, Remove: true})
		if err != nil || swapped {
			return err
		}
	}
}

// Cancel records that a person ended a pass that was under way.
type Cancel struct {
	Note string  `json:"note,omitempty"`
	By   string  `json:"by"`
	At   Instant `json:"at"`
}

// text says who ended the pass, and why.
func (c Cancel) text() string {
	if c.Note == "" {
		return "cancelled by " + c.By
	}
	return "cancelled by " + c.By + ": " + c.Note
}

// cancelled is the cause of a pass's contexts when a person ends the pass.
type cancelled struct{ by Cancel }

func (c *cancelled) Error() string { return c.by.text() }

// CancelPasses ends the passes of a job that are under way, on whatever machine, in the
// same way as a drain of their daemons: pages under way have the job's grace, units spent
// stay spent, and the next pass begins with what was cut, then what was not started. A
// daemon reacts within seconds, a process that runs a single pass at its next heartbeat.
// CancelPasses returns the passes as they are now, nil if nothing is under way. A pass
// that is already cancelled keeps its first cancel. With ErrUntold the passes end all the
// same.
func CancelPasses(ctx context.Context, in State, j *Job, note string) ([]ActivePass, error) {
	note, err := cleanNote(note)
	if err != nil {
		return nil, fmt.Errorf("cancel job %s: %w", j.Name, err)
	}
	var ended []ActivePass
	err = changeDocument(ctx, in, j.Name, time.Now, j.History, func(s *state, at clocks) (edit, error) {
		ended = nil
		set := Cancel{Note: note, By: asker(), At: InstantOf(at.store)}
		changed := false
		for i := range s.Active {
			c := &s.Active[i]
			if c.Cancel == nil {
				c.Cancel, changed = &set, true
			}
			ended = append(ended, c.pass(at.now))
		}
		if !changed {
			return edit{}, errStays
		}
		return edit{}, nil
	})
	if err != nil || len(ended) == 0 {
		return nil, err
	}
	return ended, notifyDaemons(ctx, in, j.Name)
}

// TakeBack takes back the requests of [Trigger] for a job that no daemon has started, and
// the passes that wait for units to return. Each request is recorded as skipped; each of
// the passes keeps its record, which says who took it back. TakeBack returns them, nil if
// none was waiting.
func TakeBack(ctx context.Context, in State, j *Job) (taken []Request, dropped []DeferredPass, err error) {
	err = changeDocument(ctx, in, j.Name, time.Now, j.History, func(s *state, at clocks) (edit, error) {
		taken, dropped = s.Requests, nil
		if len(taken) == 0 && len(s.Deferred) == 0 {
			return edit{}, errStays
		}
		for _, d := range s.Deferred {
			dropped = append(dropped, d.pass())
		}
		s.Requests = nil
		by := Cancel{By: asker()}
		tick := time.UnixMicro(at.store).UTC().Truncate(time.Second)
		done := s.dropAll(ReasonCancelled, by.text())
		for _, asked := range taken {
			done.record("request/"+asked.ID, Record{
				Tick: Instant{tick}, Kind: Triggered, Outcome: Skipped, Reason: ReasonCancelled, Error: "taken back before a daemon began it: " + by.text(),
				Request: asked.ID, Note: asked.text(), Runs: []Run{},
			})
		}
		return edit{records: done.kept()}, nil
	})
	if err != nil {
		return nil, nil, err
	}
	return taken, dropped, nil
}

// cancel turns the record of a pass that started nothing into that of a cancelled pass.
func (r *Record) cancel(by Cancel) {
	r.Runs = slices.Clone(r.Runs)
	for i := range r.Runs {
		run := &r.Runs[i]
		run.Outcome, run.Reason, run.Error = Skipped, ReasonCancelled, by.text()
	}
	r.conclude()
}

// mayCancel lets a person end a pass until the returned function is called.
func (r *Runner) mayCancel(holder string, end func(Cancel)) (stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.underWay[holder] = end
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.underWay, holder)
	}
}

// endCancelled ends the passes of this process that a person has cancelled.
func (r *Runner) endCancelled(active []claim) {
	for _, c := range active {
		if c.Cancel == nil {
			continue
		}
		r.mu.Lock()
		end := r.underWay[c.Holder]
		r.mu.Unlock()
		if end != nil {
			end(*c.Cancel)
		}
	}
}
