package alert

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/internal/check"
)

const team = costs + `
[alert.team]
url_env = "HOOK"
on = ["exhausted", "used 80%"]
`

// Three daemons tell once that a budget is exhausted, and once that it has units again.
func TestBeginsAndEndsOnceAPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, strings.Replace(team, "24h", "1h", 1))
		for range 3 {
			defer w.daemon()()
		}
		time.Sleep(time.Minute)
		w.tells()
		w.spend(79)
		time.Sleep(LookEvery)
		w.tells()
		w.spend(1)
		time.Sleep(2 * LookEvery)
		w.tells("used 80% begin")
		w.spend(20)
		exhausted := time.Now()
		time.Sleep(2 * LookEvery)
		w.tells("used 80% begin", "exhausted begin")
		m := w.hook.got[1]
		check.Equal(t, m.Budget, "shop/main", "budget")
		check.Equal(t, m.Limit, "daily", "limit")
		check.Equal(t, m.Job, "", "job")
		if at := m.At.Sub(exhausted); at < 0 || at > LookEvery {
			t.Errorf("it was seen %s after it was so", at)
		}
		time.Sleep(time.Hour)
		w.tells("used 80% begin", "exhausted begin", "used 80% end", "exhausted end")
		w.noSecret("team")
		check.Equal(t, w.counted[Delivered], 4, "tries")
	})
}

// A webhook that fails is asked again, later each time; the end waits for the begin, and both
// have their ids.
func TestTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, team)
		w.hook.answer = func(n int, r *http.Request) (int, http.Header, error) {
			switch n % 4 {
			case 0:
				return 0, nil, errors.New("dial " + secretAddress)
			case 1:
				return 429, http.Header{"Retry-After": {"100"}}, nil
			case 2:
				<-r.Context().Done()
				return 0, nil, r.Context().Err()
			}
			return 500, nil, nil
		}
		defer w.daemon()()
		defer w.daemon()()
		w.spend(100)
		time.Sleep(3 * time.Hour)
		w.tells()
		if w.hook.tries < 10 || w.hook.tries > 2*20 {
			t.Errorf("%d tries of two messages in three hours", w.hook.tries)
		}
		w.hook.mu.Lock()
		w.hook.answer = nil
		w.hook.mu.Unlock()
		time.Sleep(2 * time.Hour)
		check.Equal(t, len(w.hook.got), 2, "told")
		w.noSecret("team")
	})
}
