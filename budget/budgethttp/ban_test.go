package budgethttp_test

import (
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/must"
)

// A response or a rule locks for as long as it says, up to the rule's longest, or by default
// up to the longest window that is locked and at least an hour. A cut is said.
func TestALockIsCut(t *testing.T) {
	const day = 24 * time.Hour
	epoch := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	at := func(after time.Duration) map[string]string {
		return map[string]string{"X-Until": strconv.FormatInt(epoch+int64(after/time.Second), 10)}
	}
	for name, c := range map[string]struct {
		rule    feedback.Refusal // its Lock and Longest, and its Limit
		header  map[string]string
		want    time.Duration // how long it locks
		cutFrom time.Duration // 0: it is not cut
	}{
		"an hour, by default":                {feedback.Refusal{Limit: "minute"}, map[string]string{"Retry-After": "259200"}, time.Hour, 3 * day},
		"the window, by default":             {feedback.Refusal{Limit: "ten"}, map[string]string{"Retry-After": "79200"}, 10 * time.Hour, 22 * time.Hour},
		"the longest window, of all":         {feedback.Refusal{}, map[string]string{"Retry-After": "79200"}, 10 * time.Hour, 22 * time.Hour},
		"within the window":                  {feedback.Refusal{Limit: "ten"}, map[string]string{"Retry-After": "36000"}, 10 * time.Hour, 0},
		"an instant, by default":             {feedback.Refusal{Limit: "minute"}, at(3 * day), time.Hour, 3 * day},
		"one for each operation, by default": {feedback.Refusal{Limit: "each"}, map[string]string{"Retry-After": "259200"}, 2 * time.Hour, 3 * day},
		"a lock of Go, by default":           {feedback.Refusal{Limit: "minute", Lock: 72 * time.Hour}, nil, time.Hour, 3 * day},
		"3 days":                             {feedback.Refusal{Longest: 3 * day}, map[string]string{"Retry-After": "259200"}, 3 * day, 0},
		"22 hours":                           {feedback.Refusal{Limit: "minute", Longest: 3 * day}, map[string]string{"Retry-After": "79200"}, 22 * time.Hour, 0},
		"until an instant":                   {feedback.Refusal{Limit: "each", Longest: 3 * day}, at(3 * day), 3 * day, 0},
		"until the 31st day":                 {feedback.Refusal{Longest: 31 * day}, at(31 * day), 31 * day, 0},
		"a second more":                      {feedback.Refusal{Longest: 31 * day}, at(31*day + time.Second), 31 * day, 31*day + time.Second},
		"a lock":                             {feedback.Refusal{Longest: 3 * day, Lock: 3 * day}, nil, 3 * day, 0},
		"a lock that is not used":            {feedback.Refusal{Longest: 3 * day, Lock: 3 * day}, map[string]string{"Retry-After": "7"}, 7 * time.Second, 0},
		"no lock":                            {feedback.Refusal{Longest: 3 * day}, nil, time.Minute, 0},
		"less than the window":               {feedback.Refusal{Longest: 5 * time.Minute}, map[string]string{"Retry-After": "301"}, 5 * time.Minute, 301 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.rule.Name, c.rule.Means, c.rule.Status = "ban", feedback.Exhausted, []int{429}
				c.rule.Reset = []feedback.Source{{Header: "Retry-After", As: feedback.AsRetryAfter}, {Header: "X-Until", As: feedback.AsEpoch}}
				o, log := &observer{}, &strings.Builder{}
				b, client := upstreamSays(t, budget.Spec{
					Limits: []limit.Limit{
						{Name: "minute", Limit: 100, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Minute)},
						{Name: "ten", Limit: 100, Counts: limit.CountUnits, Window: limit.RollingWindow(10 * time.Hour)},
						{Name: "each", Limit: 100, Counts: limit.CountUnits, Window: limit.RollingWindow(2 * time.Hour), PerOperation: true},
					},
					Costs:    map[string]budget.Cost{"read": {Units: 5}},
					Feedback: feedback.Rules{Refusals: []feedback.Refusal{c.rule}},
				}, budgethttp.Options{Observer: o, Log: slog.New(slog.NewTextHandler(log, nil))}, said{429, c.header, ""})
				start := time.Now()
				read(t, client, "http://upstream")
				if len(o.verdicts) != 1 {
					t.Fatalf("verdicts %+v", o.verdicts)
				}
				v, cut := o.verdicts[0], c.cutFrom > 0
				if stand := locks(t, b); len(stand) != 1 || stand[0].Limit != v.Limit || stand[0].Until.Sub(start) != c.want || !v.Until.Equal(stand[0].Until) {
					t.Errorf("locks %+v, want one for %s; told %+v", stand, c.want, v)
				}
				if cut != !v.Asked.IsZero() || cut && v.Asked.Sub(start) != c.cutFrom {
					t.Errorf("told that it was asked until %s, want %s", v.Asked, c.cutFrom)
				}
				asked := "asked_until=" + v.Asked.Format("2006-01-02T15:04:05.000Z")
				if cut != strings.Contains(log.String(), asked) || cut != strings.Contains(log.String(), "give the rule a longest") {
					t.Errorf("the log says\n%s; want cut: %v", log, cut)
				}
				o.check(t)
			})
		})
	}
}

// A later refusal extends the lock of an earlier one, and never shortens it.
func TestALaterRefusalExtendsALock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		base := serve(t, func(w http.ResponseWriter, r *http.Request) {
			<-release
			late := must.Get(time.ParseDuration(r.URL.Query().Get("late")))(t)
			time.Sleep(late)
			w.Header().Set("Retry-After", r.URL.Query().Get("after"))
			w.WriteHeader(429)
		})
		b := open(t, budget.Spec{
			Costs: map[string]budget.Cost{"read": {Units: 5}},
			Feedback: feedback.Rules{Refusals: []feedback.Refusal{{
				Name: "rule", Means: feedback.Throttled, Reset: []feedback.Source{{Header: "Retry-After", As: feedback.AsRetryAfter}},
			}}},
		})
		client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: base, Operation: "read"})}
		start := time.Now()
		var calls sync.WaitGroup
		for query, until := range map[string]time.Duration{
			"late=0s&after=300": 5 * time.Minute, "late=1m&after=300": 6 * time.Minute, "late=2m&after=60": 6 * time.Minute, "late=3m&after=3000": 53 * time.Minute,
		} {
			calls.Go(func() {
				resp, _ := get(t, client, "http://upstream/?"+query) //nolint:bodyclose // get closes it
				if told, ok := budgethttp.VerdictOf(resp); !ok || !told.Until.Equal(start.Add(until)) || !told.Asked.IsZero() {
					t.Errorf("%s: told %+v, want until %s", query, told, until)
				}
			})
		}
		synctest.Wait()
		close(release)
		calls.Wait()
		if stand := locks(t, b); len(stand) != 1 || !stand[0].Until.Equal(start.Add(53*time.Minute)) || stand[0].Since.Sub(start) > time.Second {
			t.Errorf("%+v", stand)
		}
	})
}
