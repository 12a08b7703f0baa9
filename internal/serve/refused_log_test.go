package serve_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/refusals"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/serve"
)

// A refusal that is given again from memory is marked in its answer and in the log. A
// request with an id of its own goes to the store.
func TestRememberedRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		w := newWorld(t, serve.Options{})
		b := must.Get(budget.New(refusals.New(w.store, 100*time.Millisecond), w.spec, budget.WithJobStore(w.store)))(t)
		w.Server = serve.New(serve.Options{Budgets: []*budget.Budget{b}, Log: slog.New(slog.NewTextHandler(&log, nil))})
		w.post("/v1/charge", `{"budget":"shop/main","operation":"export","units":90}`).is(200)
		const export = `{"budget":"shop/main","operation":"export"`
		asked := w.post("/v1/charge", export+`}`)
		asked.is(429)
		time.Sleep(40 * time.Millisecond)
		w.post("/v1/charge", export+`}`).is(429, "remembered", true, "retry_at", "2000-01-02T00:00:00.000000Z", "retry_after_seconds", 86_399.96, "at", "2000-01-01T00:00:00.040000Z", "charged", false, "source", "store")
		w.post("/v1/charge", export+`,"wait_seconds":1}`).is(429, "remembered", true)
		mine := w.post("/v1/charge", export+`,"id":"mine"}`)
		mine.is(429)
		if strings.Contains(asked.text+mine.text, "remembered") {
			t.Errorf("marked, though the store answered:\n%s%s", asked.text, mine.text)
		}
		if n := strings.Count(log.String(), " remembered=true"); n != 2 {
			t.Errorf("%d lines are marked, want 2:\n%s", n, log.String())
		}
	})
}

// Each refused charge is a line of the log, with what it was for and when it will fit.
// Granted charges, dry runs and invalid requests are not logged.
func TestRefusalsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		w := newWorld(t, serve.Options{})
		w.Server = serve.New(serve.Options{Open: w.openNamed, Log: slog.New(slog.NewTextHandler(&log, nil))})
		w.post("/v1/charge", `{"budget":"shop/main","operation":"export","units":90}`).is(200)
		const export = `{"budget":"shop/main","operation":"export","id":"a","job":"pull","region":"US","run":"r1"`
		w.post("/v1/charge", export+`,"dry_run":true}`).is(429)
		w.post("/v1/charge", export+`,"more":1}`).is(400)
		if log.Len() > 0 {
			t.Errorf("logged: %s", log.String())
		}
		w.post("/v1/charge", export+`}`).is(429)
		w.post("/v1/charge", `{"budget":"shop/main","operation":"huge","id":"b"}`).is(422)
		if lines := strings.Count(log.String(), "\n"); lines != 2 {
			t.Fatalf("%d lines:\n%s", lines, log.String())
		}
		for i, want := range []string{
			"level=INFO msg=refused budget=shop/main operation=export id=a job=pull region=US run=r1 reason=exhausted units=40 limit=daily remaining=10 retry_at=2000-01-02T00:00:00.000000Z",
			`level=INFO msg=refused budget=shop/main operation=huge id=b job="" region="" run="" reason=never_fits units=101 limit=daily remaining=10`,
		} {
			if line := strings.Split(log.String(), "\n")[i]; !strings.HasSuffix(line, want) {
				t.Errorf("line %d is\n%s, want\n%s", i, line, want)
			}
		}
	})
}
