package door

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/look"
	"github.com/quotactl/quotactl/internal/serve"
	"github.com/quotactl/quotactl/internal/suggest"
	"github.com/quotactl/quotactl/jobs"
)

// actTime bounds an action. It goes on if the browser leaves.
const actTime = 20 * time.Second

// action is what a form does.
type action struct {
	name string // the command that does the same
	on   string // the field that names what it acts on: job or budget
	do   func(ctx context.Context, in *look.Reader, f form, sign signer) (said string, err error)
}

// actions has the actions by their paths.
var actions = map[string]action{
	"/do/trigger":  {"trigger", "job", trigger},
	"/do/withdraw": {"trigger --cancel", "job", withdraw},
	"/do/pause":    {"pause", "job", pause},
	"/do/resume":   {"resume", "job", resume},
	"/do/cancel":   {"cancel", "job", cancel},
	"/do/lock":     {"lock", "budget", lock},
	"/do/unlock":   {"unlock", "budget", unlock},
}

// act serves a POST of an action.
func (d *Door) act(w http.ResponseWriter, r *http.Request, a action) {
	if !d.o.AllowActions || !d.o.Tokens.Needed() {
		serve.Refuse(w, "no_action", "the page only shows: the daemon was started without --allow-actions")
		return
	}
	f, ok := readForm(w, r)
	if !ok {
		return
	}
	back, s := f.text("back"), d.sessionOf(r)
	switch {
	case s == nil:
		d.askToken(w, r, http.StatusForbidden, back, "You are signed out, so nothing was changed. Sign in and try again.")
		return
	case !d.mayAct(s):
		serve.Refuse(w, "no_action", "you have signed in with the read token, which may look and not act")
		return
	case !s.own(f.text("csrf")):
		refuseForm(w)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), actTime)
	defer cancel()
	log := d.o.Log.With("operation", a.name, a.on, cut(f.text(a.on), mostName), "remote", r.RemoteAddr)
	said, err := a.do(ctx, d.o.Reader(), f, signer(d.o.Machine))
	if err != nil {
		said = "Not done: " + cut(err.Error(), mostError)
		log.Warn("an action of the page failed", "error", said)
	} else {
		log.Info("an action of the page", "did", said)
	}
	d.o.Site.Changed()
	d.sessions.say(s, said)
	redirect(w, d.back(back))
}

// What is shown of a name that a browser has sent, and of an error.
const (
	mostName  = 100
	mostError = 1000
)

// cut shortens a text to most bytes.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// signer adds who acts to a note: the machine whose page it was.
type signer string

// note is a string of at most most characters with the signature.
func (s signer) note(text string, most int) (string, error) {
	by := "by the page of " + string(s)
	if text == "" {
		return by, nil
	}
	by = "; " + by
	if n, most := utf8.RuneCountInString(text), most-len(by); n > most {
		return "", fmt.Errorf("the note has %d characters: use at most %d", n, most)
	}
	return text + by, nil
}

// The bounds of notes, which are those of jobs and of locks.
const (
	mostNote = 500
	mostWhy  = 200
)

// jobNamed finds a job of the configuration.
func jobNamed(in *look.Reader, name string) (*jobs.Job, error) {
	known := make([]string, len(in.Jobs))
	for i, job := range in.Jobs {
		if known[i] = job.Name; job.Name == name {
			return job, nil
		}
	}
	return nil, fmt.Errorf("there is no job %q%s", cut(name, mostName), suggest.DidYouMean(cut(name, mostName), known))
}

// jobOrKept finds a job that may have left the configuration.
func jobOrKept(ctx context.Context, in *look.Reader, name string) (*jobs.Job, error) {
	job, err := jobNamed(in, name)
	if err == nil || !driver.ValidName(name) {
		return job, err
	}
	found, failed := in.Store.Job(ctx, name)
	switch {
	case failed != nil:
		return nil, failed
	case found.Text == nil:
		return nil, err
	}
	return &jobs.Job{Name: name}, nil
}

// budgetNamed opens a budget.
func budgetNamed(in *look.Reader, name string) (*budget.Budget, error) {
	if !driver.ValidBudget(name) {
		return nil, fmt.Errorf("there is no budget %q: write UPSTREAM/CREDENTIAL", cut(name, mostName))
	}
	return in.Open(name)
}

func trigger(ctx context.Context, in *look.Reader, f form, sign signer) (string, error) {
	job, err := jobNamed(in, f.text("job"))
	if err != nil {
		return "", err
	}
	note, err := sign.note(f.text("note"), mostNote)
	if err != nil {
		return "", err
	}
	asked, err := jobs.Trigger(ctx, in.Store, job, f.list("regions"), note)
	of := job.Name
	if len(asked.Regions) > 0 {
		of += " for " + strings.Join(asked.Regions, ", ")
	}
	switch {
	case err == nil:
		return "Requested a pass of " + of + ". A daemon starts it within seconds, or after the pass under way.", nil
	case errors.Is(err, jobs.ErrUntold):
		return "Requested a pass of " + of + ". A daemon starts it within a minute: " + err.Error(), nil
	case errors.Is(err, budget.ErrUnavailable):
		return "", fmt.Errorf("%w; the request may still be stored: look at the job", err)
	}
	return "", err
}

// withdraw takes back the requests that no daemon has begun, and the passes that are deferred.
func withdraw(ctx context.Context, in *look.Reader, f form, _ signer) (string, error) {
	job, err := jobNamed(in, f.text("job"))
	if err != nil {
		return "", err
	}
	taken, dropped, err := jobs.TakeBack(ctx, in.Store, job)
	switch {
	case err != nil:
		return "", err
	case len(taken)+len(dropped) == 0:
		return "Nothing of " + job.Name + " was waiting.", nil
	}
	return fmt.Sprintf("Withdrew what was waiting of %s; requests: %d, deferred passes: %d.", job.Name, len(taken), len(dropped)), nil
}

func pause(ctx context.Context, in *look.Reader, f form, sign signer) (string, error) {
	job, err := jobNamed(in, f.text("job"))
	if err != nil {
		return "", err
	}
	if f.text("note") == "" {
		return "", errors.New("say in the note why the job is paused")
	}
	note, err := sign.note(f.text("note"), mostNote)
	if err != nil {
		return "", err
	}
	_, _, dropped, err := jobs.SetPause(ctx, in.Store, job, note)
	if err != nil {
		return "", err
	}
	said := "Paused " + job.Name + ". A pass under way continues."
	if n := len(dropped); n > 0 {
		said += fmt.Sprintf(" Passes that waited for units and do not go on: %d.", n)
	}
	return said, nil
}

func resume(ctx context.Context, in *look.Reader, f form, _ signer) (string, error) {
	job, err := jobNamed(in, f.text("job"))
	if err != nil {
		return "", err
	}
	before, err := jobs.EndPause(ctx, in.Store, job)
	switch {
	case err != nil && !errors.Is(err, jobs.ErrUntold):
		return "", err
	case err != nil:
		return "Resumed " + job.Name + ". " + err.Error(), nil
	case before == nil:
		return job.Name + " was not paused.", nil
	}
	return "Resumed " + job.Name + ". It runs again from its next tick.", nil
}

func cancel(ctx context.Context, in *look.Reader, f form, sign signer) (string, error) {
	job, err := jobOrKept(ctx, in, f.text("job"))
	if err != nil {
		return "", err
	}
	note, err := sign.note(f.text("note"), mostNote)
	if err != nil {
		return "", err
	}
	ended, err := jobs.CancelPasses(ctx, in.Store, job, note)
	switch {
	case err != nil && !errors.Is(err, jobs.ErrUntold):
		return "", err
	case err == nil && len(ended) == 0:
		return "No pass of " + job.Name + " is under way.", nil
	case err != nil:
		return fmt.Sprintf("Cancelled %s of %s, within 15 seconds: %v", passes(len(ended)), job.Name, err), nil
	}
	return fmt.Sprintf("Cancelled %s of %s, which ends within seconds and the job's grace.", passes(len(ended)), job.Name), nil
}

func passes(n int) string {
	if n == 1 {
		return "the pass"
	}
	return fmt.Sprintf("%d passes", n)
}

// limitName is the limit of a form; empty for the whole budget.
func limitName(f form) string { return f.text("limit") }

// locked names what a form locks or unlocks.
func locked(name string, f form) string {
	if limitName(f) == "" {
		return name
	}
	return name + " limit " + limitName(f)
}

func lock(ctx context.Context, in *look.Reader, f form, sign signer) (string, error) {
	b, err := budgetNamed(in, f.text("budget"))
	if err != nil {
		return "", err
	}
	span, err := limit.ParseSpan(f.text("for"))
	if err != nil {
		return "", err
	}
	if most := time.Duration(driver.MaxLock) * time.Microsecond; span < time.Second || span > most {
		return "", fmt.Errorf("lock for %s: use 1s to %s", cut(f.text("for"), mostName), limit.SpanText(most))
	}
	why, err := sign.note(f.text("why"), mostWhy)
	if err != nil {
		return "", err
	}
	set, err := b.Lock(ctx, budget.LockOrder{Limit: limitName(f), Until: budget.Until{After: span}, Why: why, ByHand: true})
	if err != nil {
		return "", err
	}
	return "Locked " + locked(b.Name(), f) + " until " + set.Until.UTC().Format(time.RFC3339) + ".", nil
}

func unlock(ctx context.Context, in *look.Reader, f form, _ signer) (string, error) {
	b, err := budgetNamed(in, f.text("budget"))
	if err != nil {
		return "", err
	}
	stood, err := b.Unlock(ctx, limitName(f))
	switch {
	case err != nil:
		return "", err
	case stood:
		return "Unlocked " + locked(b.Name(), f) + ".", nil
	}
	said := "There was no lock on " + locked(b.Name(), f) + "."
	if limitName(f) != "" {
		return said, nil
	}
	status, err := b.Status(ctx)
	if err != nil {
		return "", err
	}
	var names []string
	for _, l := range status.Locks {
		names = append(names, l.Limit)
	}
	if slices.Sort(names); len(names) > 0 {
		said += " Locked by themselves: " + strings.Join(names, ", ") + "."
	}
	return said, nil
}
