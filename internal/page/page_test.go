package page

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/look"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs"
)

// Each page is well-formed, and made so that it can be read by keyboard, by a screen reader and
// under a policy that allows neither style attributes nor scripts in the page.
func TestPagesAreSound(t *testing.T) {
	w := newWorld(t)
	w.lives(t, "disk full")
	for _, acts := range []bool{false, true} {
		w.visitor.MayAct, w.visitor.CSRF = acts, "the-token"
		for _, path := range everyPage {
			sound(t, path, w.page(t, path))
		}
	}
	signIn := httptest.NewRecorder()
	w.SignIn(signIn, httptest.NewRequest(http.MethodGet, "/login?back=/jobs", nil), http.StatusForbidden, "This is not the token.")
	check.Equal(t, signIn.Code, http.StatusForbidden)
	page := parse(t, "/login", signIn.Body.String())
	sound(t, "/login", page)
	check.Contains(t, page.words(), "This is not the token.")
	for name, want := range map[string]string{"back": "/jobs", "token": ""} {
		fields := page.all(func(e *element) bool { return e.name == "input" && e.attrs["name"] == name })
		must.Equal(t, len(fields), 1, name)
		check.Equal(t, fields[0].attrs["value"], want, name)
	}
}

func sound(t *testing.T, path string, page *element) {
	t.Helper()
	check.Equal(t, page.named("html")[0].attrs["lang"], "en", path, "language")
	for _, landmark := range []string{"header", "main", "footer", "h1", "title"} {
		check.Equal(t, len(slices.DeleteFunc(page.named(landmark), func(e *element) bool {
			return landmark == "title" && len(e.attrs) == 0 && !within(page.named("head")[0], e)
		})), 1, path, landmark)
	}
	level, ids := 0, map[string]bool{}
	for _, e := range page.all(func(*element) bool { return true }) {
		if len(e.name) == 2 && e.name[0] == 'h' && e.name[1] >= '1' && e.name[1] <= '6' {
			if next := int(e.name[1] - '0'); next > level+1 {
				t.Errorf("%s: a heading of level %d follows one of %d: %s", path, next, level, e.words())
			} else {
				level = next
			}
			check.Equal(t, e.words() != "", true, path, "a heading says something")
		}
		if id := e.attrs["id"]; id != "" {
			check.Equal(t, ids[id], false, path, "the id", id, "is there twice")
			ids[id] = true
		}
		for name := range e.attrs {
			if name == "style" || strings.HasPrefix(name, "on") {
				t.Errorf("%s: %s has %s, which the policy forbids", path, e.name, name)
			}
		}
		switch e.name {
		case "script":
			check.Equal(t, e.words(), "", path, "a script within the page")
		case "style":
			t.Errorf("%s: a style within the page", path)
		case "th":
			check.Equal(t, slices.Contains([]string{"col", "row"}, e.attrs["scope"]), true, path, "the scope of", e.words())
		case "svg":
			check.Equal(t, e.attrs["aria-hidden"] == "true" || e.attrs["role"] == "img" && e.attrs["aria-label"] != "" || len(e.attrs["viewBox"]) > 0, true, path, "a picture has a label")
		case "input", "select":
			labelled := e.attrs["type"] == "hidden" || slices.ContainsFunc(page.named("label"), func(l *element) bool { return within(l, e) || l.attrs["for"] != "" && l.attrs["for"] == e.attrs["id"] })
			check.Equal(t, labelled, true, path, "the label of", e.attrs["name"])
		case "time":
			_, err := time.Parse(time.RFC3339, e.attrs["datetime"])
			check.NoError(t, err, path)
		}
		if e.attrs["role"] == "region" {
			check.Equal(t, e.attrs["aria-label"] != "" && e.attrs["tabindex"] == "0", true, path, "a region that scrolls can be reached by keyboard")
		}
	}
	for _, use := range page.named("use") {
		check.Equal(t, ids[strings.TrimPrefix(use.attrs["href"], "#")], true, path, "the symbol", use.attrs["href"])
	}
}

func within(parent, one *element) bool {
	return len(parent.all(func(e *element) bool { return e == one })) > 0
}

// The pages show what is so.
func TestPagesShowWhatIsSo(t *testing.T) {
	w := newWorld(t)
	w.lives(t, "disk full")
	w.visitor.Said = ""
	for _, test := range []struct {
		path string
		says []string
	}{
		{"/", []string{
			"up/key 799 of 1,000 units free, limit daily, 80 more kept for nightly By plan: nightly ", "Resets at 2026-11-28 00:00:00Z.", "By plan: nightly (tick", "up/spare", "up/spare Locked no call is allowed Locked until 2026-11-27 22:14:05Z: limit daily (disk full).",
			"As of 21:14:05Z, now", "Jobs", "Alert team: a message could not be delivered",
		}},
		{"/job?name=nightly", []string{"State running", "Next pass – Last pass"}}, // it is paused: its ticks are skipped
		{"/plan", []string{"spare 8 not known –"}},                                // nothing is counted for it
		{"/budget?name=up/key", []string{
			"799 of 1,000 units free, limit daily", "share nightly is guaranteed 200: 120 used, 80 kept, 0 borrowed", "nightly daily 200 200 120 80 0", "nightly 120 12 99.2%", "hourly 1 1 0.8%",
			"get 120 12 99.2%", "burst bucket 1/1s", "use by hour as of",
		}},
		{"/budget?name=up/spare", []string{"Locks", "Limit daily is locked until 2026-11-27 22:14:05Z: disk full", "Nothing was charged lately."}},
		{"/jobs", []string{"3 jobs", "nightly up/key", "paused by disk full since 2026-11-27 21:14:05Z: disk full", "600 configured", "5 configured", "2026-11-27 22:00:00Z"}},
		{"/jobs?q=night", []string{"1 job, of 3 in all"}},
		{"/job?name=nightly", []string{"failed, 120 units", "0 2 * * * UTC", "Last runs", "disk full", "US", "the last line"}},
		{"/runs?outcome=failed", []string{"2026-11-27 02:14:05Z nightly US failed disk full 120 12 59s"}},
		{"/plan", []string{"Short: nightly (tick 2026-11-27 21:14:05Z) will not start", "57 of 60 passes until 2026-11-29 21:14:05Z will be complete", "It is not known what the runs of spare need", "up/key", "fewest left"}},
		{"/why?budget=up/spare&operation=get", []string{"Charge up/spare get (10 units): limit daily is locked for 1h0m0s, until 2026-11-27 22:14:05Z (disk full).", "locked until 2026-11-27 22:14:05Z: limit daily (disk full), since 2026-11-27 21:14:05Z", "enough but for the lock", "10"}},
		{"/why?budget=up/key&operation=get&job=hourly", []string{"This call would be charged now.", "80 kept for nightly"}},
		{"/alerts", []string{"team", "A message could not be delivered since 2026-11-27 21:14:05Z: disk full.", "1 slack exhausted, used 80% all jobs and budgets", "exhausted up/spare daily – 2026-11-27 21:14:05Z team"}},
	} {
		words := w.page(t, test.path).named("main")[0].words()
		for _, part := range test.says {
			check.Contains(t, words, part, test.path)
		}
	}
}

// Forms are there for those who may act, with their token and the way back.
func TestForms(t *testing.T) {
	w := newWorld(t)
	w.lives(t, "disk full")
	forms := func(path string) string {
		var list []string
		for _, form := range w.page(t, path).all(func(e *element) bool { return e.name == "form" && e.attrs["method"] == "post" }) {
			fields := []string{}
			for _, field := range form.all(func(e *element) bool { return e.attrs["name"] != "" }) {
				value := ""
				if field.attrs["type"] == "hidden" {
					value = "=" + field.attrs["value"]
				}
				fields = append(fields, field.attrs["name"]+value)
			}
			list = append(list, form.attrs["action"]+" "+strings.Join(fields, " "))
		}
		return strings.Join(list, "\n")
	}
	for _, path := range everyPage {
		check.Equal(t, forms(path), "", path, "for one who may only look")
	}
	w.visitor = Visitor{MayAct: true, SignedIn: true, Token: true, CSRF: "c"}
	const out = "/logout csrf=c"
	check.Equal(t, forms("/jobs"), out)
	check.Equal(t, forms("/job?name=nightly"), out+`
/do/trigger csrf=c back=/job?name=nightly job=nightly regions note
/do/resume csrf=c back=/job?name=nightly job=nightly
/do/cancel csrf=c back=/job?name=nightly job=nightly note
/do/withdraw csrf=c back=/job?name=nightly job=nightly`)
	check.Equal(t, forms("/job?name=hourly"), out+`
/do/trigger csrf=c back=/job?name=hourly job=hourly note
/do/pause csrf=c back=/job?name=hourly job=hourly note`)
	check.Equal(t, forms("/budget?name=up/spare"), out+`
/do/unlock csrf=c back=/budget?name=up/spare budget=up/spare limit=daily
/do/lock csrf=c back=/budget?name=up/spare budget=up/spare limit for why`)
	for _, may := range []bool{false, true} {
		w.visitor = Visitor{SignedIn: true, Token: true, MayAct: may}
		check.Equal(t, strings.Contains(w.answer(t, "/jobs").Body.String(), "signed in to look"), !may, "the page says so to a visitor who may only look")
	}
	w.visitor = Visitor{Token: true}
	links := w.page(t, "/jobs?q=a&page=2").all(func(e *element) bool { return strings.HasPrefix(e.attrs["href"], "/login") })
	must.Equal(t, len(links), 1, "ways to sign in")
	check.Equal(t, links[0].attrs["href"], "/login?back=%2fjobs%3fq%3da%26page%3d2")
}

// What there is not is not found, and only reading is served.
func TestWhatIsNotServed(t *testing.T) {
	w := newWorld(t)
	for path, want := range map[string]int{
		"/budget?name=up/other": 404, "/budget": 404, "/job?name=other": 404, "/job": 404, "/runs?job=other": 404, "/nothing": 404, "/": 200, "/assets/page.css": 200, "/assets/other.css": 404,
	} {
		check.Equal(t, w.answer(t, path).Code, want, path)
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions} {
		got := httptest.NewRecorder()
		w.ServeHTTP(got, httptest.NewRequest(method, "/", nil))
		check.Equal(t, got.Code, http.StatusMethodNotAllowed, method)
	}
	for path, want := range map[string]bool{"/": true, "/jobs": true, "/events": true, "/assets/page.js": true, "/v1/status": false, "/login": false, "/do/pause": false, "/jobs/": false, "": false, "/metrics": false} {
		check.Equal(t, w.Serves(path), want, path)
	}
}

// Pages are not kept, and assets are kept until they change.
func TestHeaders(t *testing.T) {
	w := newWorld(t)
	check.Equal(t, w.answer(t, "/").Header().Get("Cache-Control"), "no-store")
	first := w.answer(t, "/assets/page.js")
	again := httptest.NewRequest(http.MethodGet, "/assets/page.js", nil)
	again.Header.Set("If-None-Match", first.Header().Get("ETag"))
	got := httptest.NewRecorder()
	w.ServeHTTP(got, again)
	check.Equal(t, got.Code, http.StatusNotModified)
	check.Equal(t, first.Header().Get("Content-Type"), "text/javascript; charset=utf-8")
}

// However many kinds of numbers a page shows, it is there before the server ends the connection.
func TestPagesDoNotWaitLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.lives(t, "disk full")
		store := &slowStore{Backend: w.store}
		w.reader.Store = store
		for path, first := range map[string]time.Duration{"/job?name=nightly": 9 * time.Second, "/jobs": 9 * time.Second, "/budget?name=up/key": time.Hour, "/": time.Hour} {
			w.Changed()
			w.shelf.books = map[string]*book{}
			store.takes.Store(int64(first))
			began := time.Now()
			got := httptest.NewRecorder()
			w.ServeHTTP(got, httptest.NewRequest(http.MethodGet, path, nil))
			check.Equal(t, time.Since(began) <= visitWaits, true, path, time.Since(began))
			check.Contains(t, got.Body.String(), "Numbers are being read", path)
			w.shelf.hold.Wait()
		}
	})
}

// Each question of /why has its own answer, also where its words are those of another one.
func TestQuestionsAreToldApart(t *testing.T) {
	w := newWorld(t)
	for _, test := range []struct{ operation, job, want string }{{"get", "a b", `job label "a b"`}, {"get a", "b", `operation "get a"`}} {
		page := w.page(t, "/why"+query("budget", "up/key", "operation", test.operation, "job", test.job)).words()
		check.Contains(t, page, test.want, test.operation)
	}
}

// Of many jobs a page lists a part, and leads to the others.
func TestManyJobs(t *testing.T) {
	w := newWorld(t)
	one := *w.reader.Jobs[0]
	for i := range 250 {
		job := one
		job.Name = fmt.Sprintf("many-%d", i)
		w.reader.Jobs = append(w.reader.Jobs, &job)
	}
	rows := func(path string) int {
		return len(w.page(t, path).all(func(e *element) bool { return e.name == "a" && strings.HasPrefix(e.attrs["href"], "/job?") }))
	}
	check.Equal(t, rows("/jobs"), 100)
	check.Equal(t, rows("/jobs?page=3"), 53)
	check.Equal(t, rows("/jobs?page=9"), 53)
	check.Equal(t, rows("/jobs?q=many-24"), 11)
	check.Equal(t, rows("/"), mostBriefs)
	check.Contains(t, w.page(t, "/jobs?page=2").words(), "Jobs 101 to 200 of 253")
}

// The first page shows first what asks for attention.
func TestAttentionFirst(t *testing.T) {
	w := newWorld(t)
	w.lives(t, "disk full")
	page := w.page(t, "/")
	links := page.all(func(e *element) bool { return e.name == "a" && strings.HasPrefix(e.attrs["href"], "/job?") })
	check.Equal(t, links[0].words(), "nightly", "the job whose last pass failed")
	cards := page.all(func(e *element) bool { return e.name == "section" && strings.HasPrefix(e.attrs["class"], "card") })
	check.Equal(t, cards[0].attrs["class"], "card good")
	check.Equal(t, cards[1].attrs["class"], "card out", "the budget whose tightest limit is locked")
}

// A limit that only observes is not what is left, and an empty one beside the tightest is named.
func TestCards(t *testing.T) {
	w := newWorld(t)
	for range 100 {
		must.Get(w.key.Charge(t.Context(), budget.Call{Operation: "get", Labels: budget.Labels{Job: "nightly"}}))(t)
	}
	status := must.Get(w.key.Rated(t.Context()))(t)
	card := newCard(status, nil)
	check.Equal(t, card.Level+": "+card.Figure+" "+card.Caption, "out: 0 of 1,000 units left, limit daily")
	check.Equal(t, card.Facts[0], "Resets at 2026-11-28 00:00:00Z.")
	for i := range status.Limits {
		status.Limits[i].Observe = status.Limits[i].Name == "daily"
		if status.Limits[i].Name == "rolling" {
			status.Limits[i].Remaining = 0
		}
	}
	card = newCard(status, nil)
	check.Equal(t, card.Level+": "+card.Figure+" "+card.Caption, "out: 0 of 3,000 units left, limit rolling")
	check.Equal(t, card.Facts[0], "The next 10 units come back at 2026-11-28 21:14:05Z.")
	for i := range status.Limits {
		if status.Limits[i].Name == "burst" {
			status.Limits[i].Remaining = 0
		}
	}
	check.Equal(t, newCard(status, nil).Facts[1], "Limit burst is empty: refills by 1/1s.")
	status.Locks = []budget.Lock{{Limit: "burst", Until: status.At.Add(time.Hour), Why: "a ban"}}
	card = newCard(status.Only("burst", ""), nil)
	check.Equal(t, card.Level+": "+card.Figure+" "+card.Caption, "out: Locked no call is allowed")
	check.Equal(t, card.Facts[0], "Locked until 2026-11-27 22:14:05Z: limit burst (a ban).")
	card = newCard(status.Only("daily", ""), nil)
	check.Equal(t, card.Level+": "+card.Figure+" "+card.Caption, "quiet: 0 of 1,000 units left, limit daily, which only observes")
}

// A job that cron starts says so, offers no pass, needs no daemon, and is urgent while a run of it
// is missing.
func TestCronsJob(t *testing.T) {
	ofCron := func() *world {
		w := newWorld(t)
		w.reader.Jobs = w.reader.Jobs[:1]
		w.reader.Jobs[0].StartedBy, w.reader.Jobs[0].MissedAfter = jobs.StartedByCron, time.Minute
		w.visitor = Visitor{MayAct: true, SignedIn: true, Token: true, CSRF: "c"}
		return w
	}
	w := ofCron()
	job := w.reader.Jobs[0]
	page := w.page(t, "/job?name="+job.Name).words()
	check.Contains(t, page, "started by cron")
	check.Contains(t, page, "no run of it is recorded yet")
	check.Equal(t, strings.Contains(page, "Start a pass"), false, "it offers a pass")
	check.Equal(t, strings.Contains(w.page(t, "/jobs").words(), "No daemon is running"), false, "it asks for a daemon")
	w = ofCron()
	w.job(t, job.Name, map[string]any{"schedule": job.Schedule.String() + " " + job.Schedule.Zone().String(), "until": w.now.Add(-72 * time.Hour).UnixMicro()})
	check.Contains(t, w.page(t, "/jobs").words(), "runs are missing, from")
	view := must.Get(w.reader.State(t.Context(), w.reader.Jobs))(t).Jobs[0]
	check.Equal(t, newJobRow(view, look.Foresight{}).Level, levelOut)
}

// A budget's page says what was refused, by whichever process, by limit, job and operation; where
// nothing was refused it says nothing.
func TestRefused(t *testing.T) {
	w := newWorld(t)
	must.Get(w.key.Charge(t.Context(), budget.Call{Operation: "get"}))(t)
	quiet := w.answer(t, "/budget?name=up/key").Body.String()
	check.Equal(t, strings.Contains(quiet, "refused in the last") || strings.Contains(quiet, "What was refused"), false, "refusals before any")
	w = newWorld(t)
	must.Get(w.key.Charge(t.Context(), budget.Call{Operation: "get"}))(t)
	must.Get(driver.Apply(t.Context(), w.store, driver.Refusals{Budget: "up/key", Now: w.now.UnixMicro(), Counts: []driver.RefusalCount{
		{Hour: driver.HourOf(w.now.UnixMicro()), Limit: "daily", Operation: "get", Job: "nightly", Refused: 1200, Waited: 3},
		{Hour: driver.HourOf(w.now.UnixMicro()), Operation: "list", Refused: 7},
	}}))(t)
	got := w.answer(t, "/budget?name=up/key").Body.String()
	for _, want := range []string{
		"1207 calls refused in the last 24h, most of nightly (daily); 3 waited.",
		`<th scope="row">daily</th><td class="n">1,200</td><td class="n">3</td>`, `<th scope="row">the whole budget</th><td class="n">7</td>`,
		`<th scope="row">nightly</th><td class="n">1,200</td>`, `<th scope="row">without a job</th><td class="n">7</td>`, `<th scope="row">list</th><td class="n">7</td>`,
	} {
		check.Contains(t, got, want)
	}
}
