package alert

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
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
