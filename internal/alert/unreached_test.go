package alert

import (
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/check"
)

// A daemon that does not reach the store at its start tells of it, and of its end; what was not
// delivered by then is left to whoever delivers.
func TestUnreached(t *testing.T) {
	for _, broken := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, costs+"\n[alert.team]\nurl_env = \"HOOK\"\non = [\"outage\"]\n")
			w.hook.answers(func(int, *http.Request) (int, http.Header, error) {
				if broken {
					return 500, nil, nil
				}
				return 200, nil, nil
			})
			u := NewUnreached(t.Context(), env, nil, w.cfg.Alerts)
			u.w.sender.client.Transport = w.hook
			away := fmt.Errorf("no store: %w", budget.ErrUnavailable)
			for range 4 { // as a daemon tries
				u.Tried(away)
				time.Sleep(5 * time.Second)
			}
			u.Tried(nil)
			synctest.Wait()
			if !broken {
				w.tells("outage begin", "outage end")
			}
			broken = false
			w.after = u
			stop := w.daemon()
			time.Sleep(time.Minute)
			w.tells("outage begin", "outage end")
			check.Equal(t, w.count(Delivered), 2, "counted")
			stop()
		})
	}
}

// A store that answers within ten seconds is no outage.
func TestReachedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, costs+"\n[alert.team]\nurl_env = \"HOOK\"\non = [\"outage\"]\n")
		u := NewUnreached(t.Context(), env, nil, w.cfg.Alerts)
		u.w.sender.client.Transport = w.hook
		u.Tried(budget.ErrUnavailable)
		time.Sleep(5 * time.Second)
		u.Tried(nil)
		u.Close()
		w.tells()
	})
}

// A daemon that is stopped before it has reached the store says what it could not deliver.
func TestNeverReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, costs+"\n[alert.team]\nurl_env = \"HOOK\"\non = [\"outage\"]\n")
		w.hook.answers(func(_ int, r *http.Request) (int, http.Header, error) {
			<-r.Context().Done()
			return 0, nil, r.Context().Err()
		})
		u := NewUnreached(t.Context(), env, slog.New(slog.NewTextHandler(w.log, nil)), w.cfg.Alerts)
		u.w.sender.client.Transport = w.hook
		u.Tried(budget.ErrUnavailable)
		time.Sleep(outageAfter)
		u.Tried(budget.ErrUnavailable)
		began := time.Now()
		u.Close()
		check.Equal(t, time.Since(began), stopTakes, "it took")
		check.Contains(t, w.log.String(), "an alert of an outage is lost", "log")
	})
}
