package serve_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/quotactl/quotactl/internal/serve"
)

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
