package alert

import (
	"context"
	"errors"
	"fmt"
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
			u := NewUnreached(env, nil, w.cfg.Alerts)
			u.w.sender.client.Transport = w.hook
			away := fmt.Errorf("no store: %w", budget.ErrUnavailable)
			for range 4 { // as a daemon tries
				u.Tried(t.Context(), away)
				time.Sleep(5 * time.Second)
			}
			u.Tried(t.Context(), nil)
			u.Leave(t.Context(), w.store)
			if !broken {
				w.tells("outage begin", "outage end")
			}
			broken = false
			defer w.daemon()()
			time.Sleep(time.Minute)
			w.tells("outage begin", "outage end")
		})
	}
}

// A store that answers within ten seconds is no outage.
func TestReachedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, costs+"\n[alert.team]\nurl_env = \"HOOK\"\non = [\"outage\"]\n")
		u := NewUnreached(env, nil, w.cfg.Alerts)
		u.w.sender.client.Transport = w.hook
		u.Tried(t.Context(), budget.ErrUnavailable)
		time.Sleep(5 * time.Second)
		u.Tried(t.Context(), nil)
		u.Leave(t.Context(), w.store)
		w.tells()
	})
}

// After a reload, nothing is told of the plan of before.
func TestAPlanOfBeforeAReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nightly)
		fixed := false
		w.forecast = func(context.Context) ([]Forecast, error) {
			if fixed {
				return nil, errors.New("no ledger")
			}
			return []Forecast{{Job: "nightly", Budget: "shop/main", Limit: "daily", Short: 1}}, nil
		}
		watcher := w.watcher()
		watcher.foresee(t.Context())
		synctest.Wait()
		list, _ := watcher.plan.last(w.jobs)
		check.Equal(t, len(list), 1, "forecasts")
		fixed = true
		w.jobs = newWorld(t, nightly).jobs
		list, made := watcher.plan.last(w.jobs)
		check.Equal(t, len(list)+int(made), 0, "of the jobs after a reload")
		watcher.foresee(t.Context())
		synctest.Wait()
		check.Equal(t, watcher.plan.of[0] == w.jobs[0], true, "a plan was made at once")
	})
}
