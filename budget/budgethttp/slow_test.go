package budgethttp_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// The upstream of the slow calls grants this much. Its clocks are put back two hours
// after the midnight in the middle.
const (
	slowWindow = 5 * time.Minute
	slowQuota  = 60  // units in a trailing window
	slowHour   = 330 // in an hour
	slowDay    = 700 // in a day of its clock
	slowZone   = "America/Los_Angeles"
	slowSpan   = 5 * time.Hour
)

// slowUpstream counts what arrives, at its arrival, and answers late. It shares
// nothing with what it is to show.
type slowUpstream struct {
	skew time.Duration // of its clock

	mu       sync.Mutex
	random   *rand.Rand
	arrivals []arrival
}

type arrival struct{ at, units int64 } // µs of true time

// some is a span below d.
func (u *slowUpstream) some(d time.Duration) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	return time.Duration(u.random.Int64N(int64(d)))
}

func (u *slowUpstream) latency() time.Duration {
	if u.some(2) == 0 {
		return u.some(20 * time.Millisecond)
	}
	return u.some(slowWindow)
}

func (u *slowUpstream) arrives(req *http.Request, late time.Duration) {
	units, err := strconv.ParseInt(req.URL.Query().Get("units"), 10, 64)
	if err != nil {
		panic(err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.arrivals = append(u.arrivals, arrival{time.Now().Add(late).UnixMicro(), units})
}

// RoundTrip lets the request travel for up to a window, and its response as long;
// many are there at once. A request that is given up on the way arrives all the same,
// a little later.
func (u *slowUpstream) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := pause(req.Context(), u.latency()); err != nil {
		u.arrives(req, time.Second-u.some(100*time.Millisecond))
		return nil, err
	}
	u.arrives(req, 0)
	if err := pause(req.Context(), u.latency()); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("{}")), Request: req}, nil
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// seen is the most units that the upstream saw in any trailing window, and in any
// hour and day of its clock; and all.
type seen struct{ window, hour, day, all int64 }

func (s seen) over() bool { return s.window > slowQuota || s.hour > slowHour || s.day > slowDay }

func (u *slowUpstream) seen(t *testing.T) (s seen) {
	t.Helper()
	zone := must.Get(time.LoadLocation(slowZone))(t)
	slices.SortFunc(u.arrivals, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	hours, days := map[time.Time]int64{}, map[string]int64{}
	first, within := 0, int64(0)
	for _, a := range u.arrivals {
		s.all += a.units
		within += a.units
		for ; u.arrivals[first].at <= a.at-slowWindow.Microseconds(); first++ {
			within -= u.arrivals[first].units
		}
		at := time.UnixMicro(a.at).Add(u.skew)
		hour, day := at.Truncate(time.Hour), at.In(zone).Format(time.DateOnly)
		hours[hour] += a.units
		days[day] += a.units
		s.window, s.hour, s.day = max(s.window, within), max(s.hour, hours[hour]), max(s.day, days[day])
	}
	return s
}

// plainCharge is the mistake: what is finished at once when it is sent.
type plainCharge struct {
	budget *budget.Budget
	base   http.RoundTripper
}

func (p plainCharge) RoundTrip(req *http.Request) (*http.Response, error) {
	if _, err := p.budget.Wait(req.Context(), budget.Call{Operation: req.URL.Path[1:]}); err != nil {
		return nil, err
	}
	return p.base.RoundTrip(req)
}

// slowRun has clients send for some hours, and tells what the upstream saw.
func slowRun(t *testing.T, seed uint64, make func(*budget.Budget, http.RoundTripper) http.RoundTripper) (saw seen) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := open(t, budget.Spec{
			Limits: []limit.Limit{
				{Name: "window", Limit: slowQuota, Counts: limit.CountUnits, Window: limit.RollingWindow(slowWindow)},
				{Name: "hour", Limit: slowHour, Counts: limit.CountUnits, Window: slowCalendar(t, limit.Hour)},
				{Name: "day", Limit: slowDay, Counts: limit.CountUnits, Window: slowCalendar(t, limit.Day)},
			},
			Costs: map[string]budget.Cost{"small": {Units: 1, Match: []string{"upstream/small"}}, "large": {Units: 5, Match: []string{"upstream/large"}}},
		})
		random := rand.New(rand.NewPCG(seed, 1))
		time.Sleep(time.Until(time.Date(2026, 11, 1, 4, random.IntN(60), 0, 0, time.UTC)))
		up := &slowUpstream{random: rand.New(rand.NewPCG(seed, 2)), skew: time.Duration(random.IntN(9)-4) * time.Second}
		client := &http.Client{Transport: make(b, up)}
		ctx, cancel := context.WithTimeout(t.Context(), slowSpan)
		defer cancel()
		var clients sync.WaitGroup
		for range 60 {
			own := rand.New(rand.NewPCG(random.Uint64(), 3))
			clients.Go(func() {
				for ctx.Err() == nil {
					slowCall(ctx, t, client, own)
				}
			})
		}
		clients.Wait()
		saw = up.seen(t)
	})
	return saw
}

// slowCalendar is a window with a guard, since the upstream's clock is another.
func slowCalendar(t *testing.T, length string) limit.Window {
	t.Helper()
	calendar := must.Get(limit.NewCalendar(length, slowZone, 0))(t)
	w := limit.CalendarWindow(calendar)
	w.Guard = (5 * time.Second).Microseconds()
	return w
}

// slowCall sends one request, which is given up now and then.
func slowCall(ctx context.Context, t *testing.T, client *http.Client, random *rand.Rand) {
	what, units := "small", 1
	if random.IntN(4) == 0 {
		what, units = "large", 5
	}
	switch random.IntN(20) {
	case 0, 1, 2, 3, 4: // a deadline
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(random.Int64N(int64(slowWindow))))
		defer cancel()
	case 5: // somebody gives up
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		defer time.AfterFunc(time.Duration(random.Int64N(int64(slowWindow))), cancel).Stop()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://upstream/%s?units=%d", what, units), nil)
	if err != nil {
		t.Error(err)
		return
	}
	resp, err := client.Do(req)
	var timeout net.Error
	switch {
	case err == nil:
		_ = resp.Body.Close()
	case errors.Is(err, budget.ErrExhausted):
		_ = pause(ctx, time.Duration(random.Int64N(int64(time.Minute))))
	case ctx.Err() == nil && (!errors.As(err, &timeout) || !timeout.Timeout()):
		t.Error(err)
	}
}

// Slow calls: an upstream that counts at arrival never sees more than its quota,
// whatever time a request takes to it and its response back, resets of its calendars
// crossed included.
func TestSlowCallsNeverPassTheQuota(t *testing.T) {
	leases := []struct {
		lease time.Duration
		least int64 // units in all, or the test shows nothing
	}{{2 * slowWindow, 1000}, {slowWindow, 1000}, {slowWindow / 4, 800}} // the last cuts most calls off
	for run := range effort.Of(3, 6) {
		lease, least := leases[run%3].lease, leases[run%3].least
		t.Run(fmt.Sprintf("%d lease %s", run, lease), func(t *testing.T) {
			seed := effort.Seed(t)
			saw := slowRun(t, seed, func(b *budget.Budget, base http.RoundTripper) http.RoundTripper {
				return meter(t, b, budgethttp.Options{Base: base, Refused: budgethttp.Wait, Lease: lease})
			})
			t.Logf("%+v", saw)
			if saw.over() {
				t.Errorf("the upstream saw more than its quota: %+v", saw)
			}
			if saw.all < least || saw.window < slowQuota*7/10 {
				t.Errorf("only %+v: what it shows is little", saw)
			}
		})
	}
}

// The same with charges that are finished when the request is sent: the test above
// would notice.
func TestSlowCallsChargedAtOncePassTheQuota(t *testing.T) {
	seed := effort.Seed(t)
	saw := slowRun(t, seed, func(b *budget.Budget, base http.RoundTripper) http.RoundTripper { return plainCharge{b, base} })
	t.Logf("seed %d: %+v", seed, saw)
	if !saw.over() {
		t.Errorf("the upstream saw no more than its quota: what the test shows is nothing: %+v", saw)
	}
}
