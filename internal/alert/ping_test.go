package alert

import (
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/jobs"
)

// Pings come in order, again if they fail, and with the last lines of what failed; none holds up
// its pass.
func TestPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, log := &hook{}, &logBuffer{}
		counted := map[Result]int{}
		p := NewPinger(env, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})), func(_ string, r Result) { counted[r]++ })
		p.sender.client.Transport = h
		j := &jobs.Job{Name: "nightly", Ping: jobs.Ping{Env: "HOOK"}}
		p.Pass(&jobs.Job{Name: "silent"}, jobs.Record{})
		began := time.Now()
		h.answer = func(n int, r *http.Request) (int, http.Header, error) {
			if n == 1 {
				<-r.Context().Done()
				return 0, nil, errors.New(secretAddress)
			}
			return 200, nil, nil
		}
		p.Pass(j, jobs.Record{})
		p.Pass(j, jobs.Record{Outcome: jobs.Failed, Reason: "exit 3", Runs: []jobs.Run{
			{Region: "US", Outcome: jobs.Succeeded, Log: []string{"not this"}},
			{Region: "GB", Outcome: jobs.Failed, Reason: "exit 3", Log: []string{"first", "last"}},
		}})
		p.Pass(j, jobs.Record{Outcome: jobs.Exhausted})
		p.Pass(j, jobs.Record{Outcome: jobs.Succeeded})
		check.Equal(t, time.Since(began), 0, "a pass waited")
		time.Sleep(time.Minute)
		synctest.Wait()
		check.EqualSlices(t, h.paths, []string{"/T0K3N/s3cret/start", "/T0K3N/s3cret/fail", "/T0K3N/s3cret/log", "/T0K3N/s3cret"}, "paths")
		check.Contains(t, h.bodies[1], "GB: failed (exit 3)\n  first\n  last\n", "the body")
		if strings.Contains(h.bodies[1], "not this") {
			t.Error("the lines of what succeeded are in it")
		}
		check.Equal(t, counted[Delivered], 4, "delivered")
		check.Equal(t, counted[Failed], 1, "failed")
		h.answer = func(int, *http.Request) (int, http.Header, error) { return 500, nil, nil }
		p.Pass(j, jobs.Record{})
		synctest.Wait()
		p.Close()
		check.Equal(t, counted[GivenUp], 1, "given up")
		if text := log.String(); strings.Contains(text, "T0K3N") || strings.Contains(text, "hooks.example") {
			t.Errorf("the address is in %s", text)
		}
	})
}
