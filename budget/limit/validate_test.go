package limit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// Each bound of a limit's fields is taken, and what is just beyond is refused.
func TestValidate(t *testing.T) {
	day := limit.CalendarWindow(must.Get(limit.NewCalendar(limit.Day, "UTC", 0))(t))
	refill := must.Get(limit.NewRefill(1, time.Second))(t)
	const hour = int64(time.Hour / time.Microsecond)
	rolling := func() limit.Limit {
		return limit.Limit{Name: "w", Limit: 100, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)}
	}
	quota := func(quota, headroom, auto int64) limit.Limit {
		l := rolling()
		l.Quota, l.Headroom, l.Limit, l.Auto = quota, headroom, quota-headroom, auto
		return l
	}
	over := func(w limit.Window) limit.Limit {
		l := rolling()
		l.Window = w
		return l
	}
	guarded := func(guard int64) limit.Window {
		w := day
		w.Guard = guard
		return w
	}
	with := func(l limit.Limit, change func(*limit.Limit)) limit.Limit {
		change(&l)
		return l
	}
	shared := func(w limit.Window, shares ...limit.Share) limit.Limit {
		l := over(w)
		l.Shares = shares
		return l
	}
	share := func(guarantee, lapse int64, plan bool) limit.Share {
		return limit.Share{Name: "s", Jobs: []string{"j"}, Guarantee: guarantee, Lapse: lapse, Plan: plan}
	}
	many := func(n int, lapses bool) (list []limit.Share) {
		for i := range n {
			s := limit.Share{Name: fmt.Sprint("s", i), Jobs: []string{fmt.Sprint("j", i)}}
			if lapses {
				s.Lapse = int64(i + 1)
			}
			list = append(list, s)
		}
		return list
	}
	jobs := func(a, b string) limit.Limit {
		return shared(day, limit.Share{Name: "a", Jobs: []string{a}}, limit.Share{Name: "b", Jobs: []string{b}})
	}
	coarse := func(length, precision int64) limit.Limit {
		return over(limit.Window{Kind: limit.Rolling, Length: length, Precision: precision})
	}
	for name, c := range map[string]struct {
		limit limit.Limit
		says  string // empty: it is taken
	}{
		"a limit of 0":                {with(rolling(), func(l *limit.Limit) { l.Limit = 0 }), ""},
		"a limit below 0":             {with(rolling(), func(l *limit.Limit) { l.Limit = -1 }), "a limit of -1"},
		"the largest limit":           {with(rolling(), func(l *limit.Limit) { l.Limit = limit.MaxUnits }), ""},
		"a larger one":                {with(rolling(), func(l *limit.Limit) { l.Limit = limit.MaxUnits + 1 }), "a limit of 1000000000000001"},
		"an outage part below 0":      {with(rolling(), func(l *limit.Limit) { l.OutagePart = -1 }), "a outage part of -1"},
		"a quota less its headroom":   {quota(100, 10, 0), ""},
		"a limit that is another":     {with(quota(100, 10, 0), func(l *limit.Limit) { l.Limit = 91 }), "its limit is 91, but its quota of 100 less its headroom of 10 is 90"},
		"the largest automatic":       {quota(100, 99, 99), ""},
		"an automatic quota":          {quota(100, 10, 100), "an automatic headroom of at most 100"},
		"more headroom than that":     {quota(100, 11, 10), "an automatic headroom of at most 10"},
		"an automatic below 0":        {quota(100, 0, -1), "an automatic headroom of at most -1"},
		"an automatic of calls":       {with(quota(100, 10, 10), func(l *limit.Limit) { l.Counts, l.Window = limit.CountCalls, limit.ConcurrentWindow() }), "an automatic headroom in a concurrent limit"},
		"a bucket with a quota":       {with(quota(100, 10, 0), func(l *limit.Limit) { l.Window = limit.BucketWindow(refill) }), ""},
		"an automatic bucket":         {with(quota(100, 10, 10), func(l *limit.Limit) { l.Window = limit.BucketWindow(refill) }), "an automatic headroom in a bucket limit"},
		"an automatic day":            {with(quota(100, 10, 10), func(l *limit.Limit) { l.Window = day }), ""},
		"no counts":                   {with(rolling(), func(l *limit.Limit) { l.Counts = "" }), `it counts ""`},
		"calls":                       {with(rolling(), func(l *limit.Limit) { l.Counts = limit.CountCalls }), ""},
		"open reservations":           {with(rolling(), func(l *limit.Limit) { l.Counts, l.Window = limit.CountCalls, limit.ConcurrentWindow() }), ""},
		"open reservations' units":    {over(limit.ConcurrentWindow()), "it counts open reservations"},
		"a window of nothing":         {coarse(0, 0), "a rolling window of 0 µs"},
		"the shortest window":         {coarse(1, 0), ""},
		"the shortest slots":          {coarse(hour, limit.MinPrecision), ""},
		"shorter slots":               {coarse(hour, limit.MinPrecision-1), "in slots of 999"},
		"slots as long":               {coarse(hour, hour), ""},
		"longer slots":                {coarse(hour, hour+1), "in slots of 3600000001"},
		"no calendar":                 {over(limit.Window{Kind: limit.CalendarKind}), "use NewCalendar"},
		"the longest guard":           {over(guarded(limit.MaxGuard)), ""},
		"a longer guard":              {over(guarded(limit.MaxGuard + 1)), "a guard of 300000001 µs"},
		"a guard below 0":             {over(guarded(-1)), "a guard of -1 µs"},
		"a bucket without a rate":     {over(limit.Window{Kind: limit.Bucket}), "a bucket without a rate"},
		"no kind":                     {over(limit.Window{}), `a window of kind ""`},
		"a bucket of a year":          {with(over(limit.BucketWindow(refill)), func(l *limit.Limit) { l.Limit = int64(limit.MaxWindow / time.Second) }), ""},
		"a bucket of more":            {with(over(limit.BucketWindow(refill)), func(l *limit.Limit) { l.Limit = int64(limit.MaxWindow/time.Second) + 1 }), "it takes 8784h0m1s to refill: use at most 8784h"},
		"a guarantee of 0":            {shared(day, share(0, 0, false)), ""},
		"a guarantee below 0":         {shared(day, share(-1, 0, false)), "share s: a guarantee of -1"},
		"the largest guarantee":       {shared(day, share(limit.MaxUnits, 0, false)), ""},
		"a larger guarantee":          {shared(day, share(limit.MaxUnits+1, 0, false)), "share s: a guarantee of 1000000000000001"},
		"a share of a rolling limit":  {shared(limit.RollingWindow(time.Hour), share(1, 0, false)), ""},
		"a share of a bucket":         {shared(limit.BucketWindow(refill), share(1, 0, false)), "share s: only a rolling or a calendar limit can be divided"},
		"a lapse in a rolling limit":  {shared(limit.RollingWindow(time.Hour), share(1, 1, false)), "share s: a lapse of 1 µs"},
		"a lapse below 0":             {shared(day, share(1, -1, false)), "share s: a lapse of -1 µs"},
		"a plan":                      {shared(day, share(1, 0, true)), ""},
		"a plan and a lapse":          {shared(day, share(1, hour, true)), "share s: it lapses both by plan and at a time"},
		"the longest lapse":           {shared(day, share(1, 22*hour-1, false)), ""},
		"a longer lapse":              {shared(day, share(1, 22*hour, false)), "use less than 22h, because a day on which the clocks change may be little longer"},
		"the longest beside a guard":  {shared(guarded(1_000_000), share(1, 22*hour-1_000_001, false)), ""},
		"a longer beside a guard":     {shared(guarded(1_000_000), share(1, 22*hour-1_000_000, false)), "use less than 21h59m59s: 22h, because a day on which the clocks change may be little longer, less the guard"},
		"a share without jobs":        {shared(day, limit.Share{Name: "s"}), "share s: it has no jobs"},
		"as many shares":              {shared(day, many(limit.MaxShares, false)...), ""},
		"one more share":              {shared(day, many(limit.MaxShares+1, false)...), "it has 65 shares"},
		"as many lapses":              {shared(day, many(limit.MaxLapses, true)...), ""},
		"one more lapse":              {shared(day, many(limit.MaxLapses+1, true)...), "its guarantees lapse at 9 different times"},
		"a job in two shares":         {jobs("a.*", "a.b"), `a job can match both "a.*" and "a.b"`},
		"the same in the other order": {jobs("a.b", "a.*"), `a job can match both "a.b" and "a.*"`},
		"jobs apart":                  {jobs("a.*", "b.*"), ""},
	} {
		switch err := c.limit.Validate(); {
		case c.says == "":
			check.NoError(t, err, name)
		case err == nil:
			t.Errorf("%s was taken", name)
		default:
			check.Contains(t, err.Error(), c.says, name)
		}
	}
}
