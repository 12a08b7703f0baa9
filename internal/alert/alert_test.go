package alert

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
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
		m := w.hook.messages()[1]
		check.Equal(t, m.Budget, "shop/main", "budget")
		check.Equal(t, m.Limit, "daily", "limit")
		check.Equal(t, m.Job, "", "job")
		if at := m.At.Sub(exhausted); at < 0 || at > LookEvery {
			t.Errorf("it was seen %s after it was so", at)
		}
		time.Sleep(time.Hour)
		ends := w.hook.told()[2:] // of one instant: they are sent side by side
		slices.Sort(ends)
		check.EqualSlices(t, ends, []string{"exhausted end", "used 80% end"}, "ends")
		w.noSecret("team")
		check.Equal(t, w.count(Delivered), 4, "tries")
	})
}

// A webhook that fails is asked again, later each time; the end waits for the begin, and both
// have their ids.
func TestTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, team)
		w.hook.answers(func(n int, r *http.Request) (int, http.Header, error) {
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
		})
		defer w.daemon()()
		defer w.daemon()()
		w.spend(100)
		time.Sleep(3 * time.Hour)
		w.tells()
		if w.hook.tried() < 10 || w.hook.tried() > 2*20 {
			t.Errorf("%d tries of two messages in three hours", w.hook.tried())
		}
		w.hook.answers(nil)
		time.Sleep(2 * time.Hour)
		check.Equal(t, len(w.hook.messages()), 2, "told")
		w.noSecret("team")
	})
}

// Use that falls below a threshold by less than 5 percent does not end the alert.
func TestUsedEndsBelow(t *testing.T) {
	s := budget.Status{Budget: "shop/main", Limits: []budget.LimitStatus{{Limit: limit.Limit{Name: "daily", Limit: 1000, Window: limit.RollingWindow(time.Hour)}}}}
	for used, want := range map[int64]string{800: "on", 799: "", 750: "", 749: "off"} {
		s.Limits[0].Used = used
		for _, f := range ofBudget(s, []int64{80}) {
			if f.Kind == "used 80%" && (f.on != (want == "on") || f.off != (want == "off")) {
				t.Errorf("%d of 1000: %+v", used, f)
			}
		}
	}
}
