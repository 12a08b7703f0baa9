package door_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/door"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs"
)

// job is the state of the job.
func (w *world) job() jobs.Overview {
	w.t.Helper()
	return must.Get(jobs.Look(w.t.Context(), w.store, w.reader.Jobs))(w.t)[0]
}

// locks are those of the budget: what, and why.
func (w *world) locks() string {
	w.t.Helper()
	status := must.Get(must.Get(w.reader.Open("shop/main"))(w.t).Status(w.t.Context()))(w.t)
	var list []string
	for _, l := range status.Locks {
		left := time.Until(l.Until).Round(time.Minute)
		list = append(list, fmt.Sprintf("%s|%s|%s", l.Limit, left, l.Why))
	}
	return strings.Join(list, ", ")
}

// said is what the next page shows, and no further one.
func (v *visitor) said() string {
	v.w.t.Helper()
	_, rest, _ := strings.Cut(v.get("/jobs").Body.String(), "said=")
	check.Contains(v.w.t, v.get("/jobs").Body.String(), `said=""`, "once")
	return strings.TrimSuffix(strings.TrimPrefix(rest, `"`), `"`)
}

// Each action does what the command of its name does, says so once, and is logged.
func TestActions(t *testing.T) {
	w := newWorld(t, nil)
	v := w.signIn(token)
	act := func(path, says string, fields ...string) {
		t.Helper()
		changed, command := w.site.changed, strings.TrimPrefix(path, "/do/")
		if command == "withdraw" {
			command = `"trigger --cancel"`
		}
		w.log.Reset()
		got := v.post(path, append(fields, "back", "/job?name=trending")...)
		must.Equal(t, got.Code, http.StatusSeeOther, path, got.Body)
		check.Equal(t, got.Header().Get("Location"), "/job?name=trending")
		check.Contains(t, v.said(), says, path, fields)
		check.Equal(t, w.site.changed, changed+1, "the pages read anew")
		for _, part := range []string{"operation=" + command, "=" + fields[1], "remote=127.0.0.1:54321"} {
			check.Contains(t, w.log.String(), part)
		}
	}

	act("/do/trigger", "Requested a pass of trending. A daemon starts it within seconds", "job", "trending")
	act("/do/trigger", "Requested a pass of trending for US, GB.", "job", "trending", "regions", "US", "regions", "GB, ", "note", " they were empty ")
	requests := w.job().Requests
	must.Equal(t, len(requests), 2)
	check.Equal(t, requests[0].Note, "by the page of host-1")
	check.Equal(t, requests[1].Note, "they were empty; by the page of host-1")
	check.EqualSlices(t, requests[1].Regions, []string{"US", "GB"})

	act("/do/trigger", "Requested a pass of trending for GB, US.", "job", "trending", "regions", " GB  US")

	act("/do/withdraw", "Withdrew what was waiting of trending; requests: 3, deferred passes: 0.", "job", "trending")
	check.Equal(t, len(w.job().Requests), 0)
	act("/do/withdraw", "Nothing of trending was waiting.", "job", "trending")

	act("/do/pause", "Paused trending.", "job", "trending", "note", "its consumer moves")
	check.Equal(t, w.job().Pause.Note, "its consumer moves; by the page of host-1")
	act("/do/resume", "Resumed trending.", "job", "trending")
	check.Equal(t, w.job().Pause == nil, true)
	act("/do/resume", "trending was not paused.", "job", "trending")

	act("/do/cancel", "No pass of trending is under way.", "job", "trending")
	soon := time.Now().Add(time.Minute).UnixMicro()
	found := must.Get(w.store.Job(t.Context(), "trending"))(t)
	must.Get(w.store.SwapJob(t.Context(), driver.JobSwap{Job: "trending", Version: found.Version, Text: fmt.Appendf(nil, `{"active":[{"holder":"host-2/1","tick":1,"until":%d}]}`, soon)}))(t)
	act("/do/cancel", "Cancelled the pass of trending", "job", "trending", "note", "too much")
	check.Equal(t, w.job().Active[0].Cancelled.Note, "too much; by the page of host-1")
	w.reader.Jobs = nil
	act("/do/cancel", "Cancelled the pass of trending", "job", "trending")

	act("/do/lock", "Locked shop/main until ", "budget", "shop/main", "for", "2h", "why", "an increase is pending")
	check.Equal(t, w.locks(), "|2h0m0s|an increase is pending; by the page of host-1")
	act("/do/lock", "Locked shop/main limit gets until ", "budget", "shop/main", "limit", "gets", "for", "7d")
	check.Contains(t, w.locks(), "gets|168h0m0s|by the page of host-1")
	act("/do/unlock", "Unlocked shop/main.", "budget", "shop/main")
	act("/do/unlock", "There was no lock on shop/main. Locked by themselves: gets.", "budget", "shop/main")
	act("/do/unlock", "Unlocked shop/main limit gets.", "budget", "shop/main", "limit", "gets")
	act("/do/unlock", "There was no lock on shop/main.", "budget", "shop/main")
	check.Equal(t, w.locks(), "")
	secrets(t, w.log.String())
}

// What a form asks for wrongly changes nothing, and the page says what to do.
func TestWrongActions(t *testing.T) {
	long := strings.Repeat("x", 480)
	for _, c := range []struct {
		path   string
		fields []string
		says   string
	}{
		{"/do/trigger", []string{"job", "trendin"}, `Not done: there is no job \"trendin\"; did you mean \"trending\"?`},
		{"/do/trigger", nil, `Not done: there is no job \"\"`},
		{"/do/trigger", []string{"job", "trending", "regions", "FR"}, `it has no region \"FR\"`},
		{"/do/trigger", []string{"job", "trending", "regions", "US,US"}, "named twice"},
		{"/do/trigger", []string{"job", "trending", "note", long}, "the note has 480 characters: use at most 477"},
		{"/do/withdraw", []string{"job", "none"}, "there is no job"},
		{"/do/pause", []string{"job", "trending", "note", "  "}, "say in the note why"},
		{"/do/pause", []string{"job", "trending", "note", long}, "use at most 477"},
		{"/do/pause", []string{"job", "none", "note", "n"}, "there is no job"},
		{"/do/resume", []string{"job", "none"}, "there is no job"},
		{"/do/cancel", []string{"job", "none"}, "there is no job"},
		{"/do/cancel", []string{"job", "../none"}, "there is no job"},
		{"/do/cancel", []string{"job", "trending", "note", long}, "use at most 477"},
		{"/do/lock", []string{"budget", "shop/other", "for", "1h"}, "unknown budget"},
		{"/do/lock", []string{"budget", strings.Repeat("x", 4000), "for", "1h"}, "there is no budget"},
		{"/do/lock", []string{"budget", "shop/main", "limit", "daly", "for", "1h"}, `no limit \"daly\"`},
		{"/do/lock", []string{"budget", "shop/main"}, "Not done: "},
		{"/do/lock", []string{"budget", "shop/main", "for", "soon"}, "Not done: "},
		{"/do/lock", []string{"budget", "shop/main", "for", "10ms"}, "use 1s to "},
		{"/do/lock", []string{"budget", "shop/main", "for", "400d"}, "use 1s to "},
		{"/do/lock", []string{"budget", "shop/main", "for", "1h", "why", long[:178]}, "use at most 177"},
		{"/do/unlock", []string{"budget", "shop/main", "limit", "none"}, `no limit \"none\"`},
		{"/do/unlock", []string{"budget", "none"}, "there is no budget"},
		{"/do/unlock", []string{"budget", "shop/main", "limit", strings.Repeat("x", 4000)}, "…"},
		{"/do/trigger", []string{"job", "trending", "regions", strings.Repeat("ü", 2000)}, "…"},
	} {
		w := newWorld(t, nil)
		v := w.signIn(token)
		got := v.post(c.path, c.fields...)
		must.Equal(t, got.Code, http.StatusSeeOther, c.path, c.fields)
		check.Equal(t, got.Header().Get("Location"), "/")
		said := v.said()
		check.Contains(t, said, c.says, c.path, c.fields)
		check.Equal(t, len(said) < 1100, true, "it is short:", said)
		check.Equal(t, utf8.ValidString(said), true)
		check.Contains(t, w.log.String(), "an action of the page failed")
		if s := w.job(); len(s.Requests) > 0 || s.Pause != nil || w.locks() != "" {
			t.Errorf("%s %q has changed %+v, %s", c.path, c.fields, s, w.locks())
		}
	}
}

// A form that no page sends is refused whole.
func TestForms(t *testing.T) {
	w := newWorld(t, nil)
	v := w.signIn(token)
	for _, c := range []struct {
		name   string
		body   string
		status int
		part   string
	}{
		{"a control character", "job=trending&note=a%0ab", 400, `the form's field \"note\" has a control character`},
		{"an escape", "job=trending&note=%1b%5b2J", 400, "has a control character"},
		{"no UTF-8", "job=trending&note=%ff", 400, "is not UTF-8"},
		{"a long field", "job=trending&note=" + strings.Repeat("x", 4097), 400, "is longer than 4 KiB"},
		{"a field twice", "job=trending&job=other&note=n", 400, "more than once"},
		{"a bad escape", "job=trending&note=%zz", 400, "could not be read"},
		{"too much", "note=" + strings.Repeat("x", 16<<10), 413, "at most 16 KiB"},
	} {
		for _, path := range []string{"/do/pause", "/login", "/logout"} {
			r := v.with(w.request(http.MethodPost, path, nil))
			r.Body = http.NoBody
			filled := httptestBody(w, r, "csrf="+v.csrf+"&token="+token+"&"+c.body)
			got := w.do(filled)
			shows(t, got, c.status, c.part, c.name, path)
			check.Equal(t, got.Header().Get("Content-Type"), "application/problem+json", c.name, path)
			secrets(t, got.Body.String(), c.name)
		}
	}
	check.Equal(t, w.job().Pause == nil, true)
	check.Equal(t, v.get("/").Code, 200, "the session is as it was")
	// What is in the address is no part of a form.
	r := v.with(w.request(http.MethodPost, "/do/pause?"+url.Values{"csrf": {v.csrf}, "job": {"trending"}, "note": {"n"}}.Encode(), url.Values{}))
	shows(t, w.do(r), 403, "old_form")
}

func httptestBody(w *world, r *http.Request, body string) *http.Request {
	filled := r.Clone(w.t.Context())
	filled.Body, filled.ContentLength = readCloser{strings.NewReader(body)}, int64(len(body))
	return filled
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }

// The read token signs in to look. It never acts, whatever it sends, and neither does the token
// without leave.
func TestReadTokenNeverActs(t *testing.T) {
	for name, c := range map[string]struct {
		with    string
		options func(*door.Options)
	}{
		"the read token":          {readToken, nil},
		"the token without leave": {token, func(o *door.Options) { o.AllowActions = false }},
	} {
		w := newWorld(t, c.options)
		v := w.signIn(c.with)
		for _, path := range []string{"/do/trigger", "/do/withdraw", "/do/pause", "/do/resume", "/do/cancel", "/do/lock", "/do/unlock"} {
			shows(t, v.post(path, "job", "trending", "note", "n", "budget", "shop/main", "for", "1h"), 403, "no_action", name, path)
			r := v.with(w.request(http.MethodPost, path, url.Values{"csrf": {v.csrf}, "job": {"trending"}, "note": {"n"}}))
			r.Header.Set("Authorization", "Bearer "+token)
			shows(t, w.do(r), 403, "no_action", name, path, "with a bearer token")
		}
		check.Equal(t, v.get("/").Code, 200)
		if s := w.job(); len(s.Requests) > 0 || s.Pause != nil || w.locks() != "" || w.site.changed != 0 {
			t.Errorf("%s has changed %+v, %s", name, s, w.locks())
		}
	}
}

// An action goes on if the browser leaves.
func TestActionsOutliveRequests(t *testing.T) {
	w := newWorld(t, nil)
	v := w.signIn(token)
	ctx, leave := context.WithCancel(t.Context())
	leave()
	r := v.with(w.request(http.MethodPost, "/do/trigger", url.Values{"csrf": {v.csrf}, "job": {"trending"}})).WithContext(ctx)
	w.reader.Store = obedient{w.store}
	check.Equal(t, w.do(r).Code, 303)
	check.Equal(t, len(w.job().Requests), 1)
}

// obedient is a store that does nothing once its caller has left.
type obedient struct{ open.Backend }

func (o obedient) Job(ctx context.Context, job string) (driver.JobDocument, error) {
	if err := ctx.Err(); err != nil {
		return driver.JobDocument{}, err
	}
	return o.Backend.Job(ctx, job)
}

// An error of the store is shown, and what is not known is said.
func TestActionsWithoutAStore(t *testing.T) {
	w := newWorld(t, nil)
	v := w.signIn(token)
	whole := w.reader.Store
	w.reader.Store = broken{w.store}
	v.post("/do/trigger", "job", "trending")
	check.Contains(t, v.said(), "the request may still be stored: look at the job")
	v.post("/do/cancel", "job", "gone")
	check.Contains(t, v.said(), "Not done: ")
	w.reader.Store = whole
	check.Equal(t, len(w.job().Requests), 0)
}

// broken is a store that can read no job.
type broken struct{ open.Backend }

var errBroken = errors.Join(budget.ErrUnavailable, errors.New("the network is down"))

func (broken) Job(context.Context, string) (driver.JobDocument, error) {
	return driver.JobDocument{}, errBroken
}

func (broken) Jobs(context.Context, []string) ([]driver.JobDocument, error) { return nil, errBroken }
