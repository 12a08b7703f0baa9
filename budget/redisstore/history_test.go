package redisstore_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
	"github.com/quotactl/quotactl/internal/storetest"
)

// historyDay is a day, in µs.
const historyDay = 24 * driver.HistoryHour

// dayKey is the key of the day of an instant.
func dayKey(at int64) string { return fmt.Sprintf("quotactl:v1:{%s}:h:%d", name, at/historyDay) }

// The key of a day's history expires as long after the day as history is kept, and an hour:
// whether a charge, a settlement or an import made it.
func TestHistoryExpires(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	f := &fakeStore{t: t, now: time.Date(2100, 6, 10, 12, 0, 0, 0, time.UTC).UnixMicro()} // ahead of the server, which does not remove the keys
	f.Store = must.Get(redisstore.OpenWithPlainExpiries(server.URL(0), redisstore.Options{Timeout: patient}, func() int64 { return f.now }))(t)
	t.Cleanup(func() { _ = f.Close() })
	f.charge("first", 6)
	f.importHistory(driver.Row{Start: f.now - 3*historyDay, Units: 1, Calls: 1})
	for _, at := range []int64{f.now, f.now - 3*historyDay} {
		expires := must.Get(server.Client().PExpireTime(t.Context(), dayKey(at)).Result())(t)
		want := (at/historyDay+1)*historyDay + driver.HistoryHour + driver.HistoryKept
		check.Equal(t, expires, time.Duration(want)*time.Microsecond, "expires at")
	}
}

// importHistory imports rows of another history, of an operation "op".
func (f *fakeStore) importHistory(rows ...driver.Row) {
	f.t.Helper()
	f.importHistoryAs("e", rows...)
}

// importHistoryAs does so as an export of a name.
func (f *fakeStore) importHistoryAs(export string, rows ...driver.Row) {
	f.t.Helper()
	for i := range rows {
		rows[i].Start = driver.HourOf(rows[i].Start)
		rows[i].ID, rows[i].State, rows[i].Operation, rows[i].Score = "OTHER", driver.RowHistory, "op", rows[i].Start
	}
	must.Get(driver.Apply(f.t.Context(), f, driver.Import{
		Budget: name, Now: f.now, Export: export, Head: driver.LedgerHead{At: f.now}, Rows: rows, Last: true,
	}))(f.t)
}

// A day that an older version imported does not say of which instant its rows are: any import
// replaces them. The other hours of a series stay as they are.
func TestImportIntoOlderDay(t *testing.T) {
	t.Parallel()
	f, admin := startFake(t)
	key, hour := dayKey(f.now), driver.HourOf(f.now)%historyDay/driver.HistoryHour
	must.Do(t, admin.HSet(t.Context(), key, "op||DE|OTHER", fmt.Sprintf("%d 5 1,%d -2 0,%d 6 1", hour-1, hour, hour-2), "#", 1, "@", "OWN").Err())
	row := func(units, asOf int64) driver.Row {
		return driver.Row{Units: units, Calls: 1, Start: f.now, Labels: driver.Labels{Region: "DE"}, AsOf: asOf}
	}
	for i, one := range []struct{ units, asOf, want int64 }{{7, f.now, 7}, {3, f.now - 1, 7}, {4, f.now, 4}, {2, f.now + 1, 2}} {
		f.importHistoryAs(fmt.Sprint("e", i), row(one.units, one.asOf))
		check.Equal(t, f.units(), 5+6+one.want, "units after import", i)
	}
	check.Equal(t, must.Get(admin.HGet(t.Context(), key, "#").Result())(t), "1", "imported series")
	check.Equal(t, must.Get(admin.HGet(t.Context(), key, "op||DE|OTHER").Result())(t),
		fmt.Sprintf("%d 5 1,%d 2 1 %d,%d 6 1", hour-1, hour, f.now+1, hour-2), "the series")
}

// units is the sum of a budget's history.
func (f *fakeStore) units() (sum int64) {
	f.t.Helper()
	for _, row := range must.Get(f.History(f.t.Context(), driver.HistoryQuery{Budget: name, Now: f.now}))(f.t).Rows {
		sum += row.Units
	}
	return sum
}

func TestHistoryOutlivesTheLedger(t *testing.T) {
	t.Parallel()
	f, admin := startFake(t)
	storetest.HistoryOutlives(t, f, f.now, func(budget string) {
		keys := must.Get(admin.Keys(t.Context(), "*{"+budget+"}:[^hl]*").Result())(t)
		must.Equal(t, len(keys) >= 3, true, "keys of the ledger:", keys)
		must.Do(t, admin.Del(t.Context(), keys...).Err())
	})
}

// A store that keeps no history leaves it out of an import, and imports the rest.
func TestImportWithoutHistory(t *testing.T) {
	t.Parallel()
	f, admin := startFake(t)
	f.Store = openWithoutHistory(t, f)
	at := driver.HourOf(f.now)
	rows := []driver.Row{
		{ID: "OTHER", State: driver.RowHistory, Operation: "op", Units: 7, Calls: 1, Start: at, Score: at},
		{ID: "a", State: driver.RowPlain, Operation: "op", Asked: 7, Units: 7, Calls: 1, Start: f.now, Score: f.now},
	}
	done := must.Get(driver.Apply(t.Context(), f, driver.Import{Budget: name, Now: f.now, Limits: hourly, Export: "e", Head: driver.LedgerHead{Ledger: "OTHER", At: f.now}, Rows: rows, Last: true}))(t)
	check.Equal(t, done.Added, 1, "added")
	check.Equal(t, done.Done, 2, "rows done")
	check.Equal(t, must.Get(f.Look(t.Context(), driver.Look{Budget: name, Now: f.now, Limits: hourly}))(t).Limits[0].Used, 7, "used")
	check.Equal(t, f.units(), 0, "units of the history")
	check.Equal(t, len(must.Get(admin.Keys(t.Context(), "*:h:*").Result())(t)), 0, "keys of the history")
}

// No history key of an upstream without history is written, by either path of a charge or by the end of a
// reservation; of others all are.
func TestHistoryOfAnUpstreamIsOff(t *testing.T) {
	t.Parallel()
	f, admin := startFake(t)
	address := admin.Options()
	store := must.Get(redisstore.OpenWithClock("redis://"+address.Addr+fmt.Sprint("/", address.DB), redisstore.Options{Timeout: patient, NoHistory: "other up"}, func() int64 { return f.now }))(t)
	t.Cleanup(func() { _ = store.Close() })
	limits := []limit.Limit{{Name: "w", Limit: 100, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)}}
	for _, budget := range []string{"up/key", "ups/key"} {
		for i := range 3 { // the first by charge.lua
			item := driver.Item{ID: fmt.Sprint(i), Operation: "a", Units: 2, Lease: int64(i) * 1e6}
			must.Do(t, check.Err(store.Decide(t.Context(), driver.Batch{Budget: budget, Now: f.now, Limits: limits, Items: []driver.Item{item}})))
		}
		must.Do(t, check.Err(driver.FinishOne(t.Context(), store, budget, f.now, driver.Finish{ID: "2", Units: 1})))
		keys := must.Get(admin.Keys(t.Context(), "*{"+budget+"}:[hl]:*").Result())(t)
		check.Equal(t, len(keys) > 0, budget == "ups/key", budget, "has history: ", keys)
		view := must.Get(store.History(t.Context(), driver.HistoryQuery{Budget: budget, Now: f.now}))(t)
		check.Equal(t, len(view.Rows) > 0, budget == "ups/key", budget, "shows history")
	}
}

// openWithoutHistory opens another store on the server of f that keeps no history.
func openWithoutHistory(t *testing.T, f *fakeStore) *redisstore.Store {
	address := f.Client().(*redis.Client).Options()
	store := must.Get(redisstore.OpenWithClock("redis://"+address.Addr+fmt.Sprint("/", address.DB), redisstore.Options{Timeout: patient, History: -1}, func() int64 { return f.now }))(t)
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// No run of a script reads much more than FieldsAtOnce series, however many days and series
// there are, and all runs together read everything.
func TestHistoryIsReadInPages(t *testing.T) {
	t.Parallel()
	f, admin := startFake(t)
	const days, series = 9, driver.MaxSeries + 200
	for day := range int64(days) {
		key, fields := dayKey(f.now-day*historyDay), []string{"#", "200", "@", "OWN"}
		for i := range series {
			field := fmt.Sprint("op|job|r", i)
			if i >= driver.MaxSeries {
				field += "|OTHER"
			}
			text := "0 1 1"
			for hour := 1; hour < 12 && day > 0; hour++ {
				text += fmt.Sprintf(",%d 1 1", hour)
			}
			fields = append(fields, field, text)
		}
		must.Do(t, admin.HSet(t.Context(), key, fields).Err())
	}
	runs := &pages{sha: redisstore.HistorySHA(f.Store)}
	f.Client().AddHook(runs)
	check.Equal(t, f.units(), series*(1+12*(days-1)), "units")
	check.Equal(t, runs.most <= 2*redisstore.FieldsAtOnce, true, "fields in the largest run:", runs.most)
	check.Equal(t, runs.all >= days*(series+1), true, "fields in all runs:", runs.all)

	// Few series of many days are read in few runs.
	must.Do(t, admin.FlushAll(t.Context()).Err())
	for day := range int64(days) {
		must.Do(t, admin.HSet(t.Context(), dayKey(f.now-day*historyDay), "op|job|US", "3 5 2", "@", "OWN").Err())
	}
	runs.runs = 0
	check.Equal(t, f.units(), 5*days, "units of few series")
	check.Equal(t, runs.runs <= 1+91/7+1, true, "runs:", runs.runs)
}

// pages counts what runs of history_read.lua return.
type pages struct {
	sha string

	mu              sync.Mutex // guards all below
	runs, most, all int
}

func (*pages) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*pages) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (p *pages) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		reply, answered := cmd.(interface{ Val() any })
		if len(cmd.Args()) < 2 || cmd.Args()[1] != any(p.sha) || err != nil || !answered {
			return err
		}
		fields := 0
		if list, ok := reply.Val().([]any); ok && len(list) > 5 {
			for _, day := range list[5].([]any) {
				fields += len(day.([]any)) / 2
			}
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.runs, p.most, p.all = p.runs+1, max(p.most, fields), p.all+fields
		return err
	}
}

func TestHistoryBegins(t *testing.T) {
	t.Parallel()
	f, admin := startFake(t)
	storetest.HistoryBegins(t, openWithoutHistory(t, f), f, f.now, func() storetest.Store {
		must.Do(t, admin.HDel(t.Context(), "quotactl:v1:{"+name+"}:m", "unnoted").Err())
		must.Do(t, admin.Del(t.Context(), dayKey(f.now)).Err())
		return f
	})
}

// A store that keeps no history reserves on a ledger that has one: the end of that is in no
// number.
func TestHistoryOfTwoStores(t *testing.T) {
	t.Parallel()
	f, _ := startFake(t)
	f.charge("noted", 3)
	without := openWithoutHistory(t, f)
	limits := []limit.Limit{{Name: "w", Limit: 100, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)}}
	must.Do(t, check.Err(without.Decide(t.Context(), driver.Batch{Budget: name, Now: f.now, Limits: limits, Items: []driver.Item{{ID: "r", Operation: "a", Units: 2, Lease: 1e6}}})))
	must.Do(t, check.Err(driver.FinishOne(t.Context(), f, name, f.now, driver.Finish{ID: "r", Release: true})))
	check.Equal(t, f.units(), 0+1+2, "units in the history")
}

// Charges are noted in a log of the day, which does not grow with them.
func TestHistoryLogIsBounded(t *testing.T) {
	t.Parallel()
	f, admin := startFake(t)
	log := strings.Replace(dayKey(f.now), ":h:", ":l:", 1)
	longest, emptied := int64(0), 0
	const runs, each = 2000, 0 + 1 + 2 // units of three calls
	for i := range runs {
		f.charge(fmt.Sprint(i, "-"), 3)
		switch length := must.Get(admin.StrLen(t.Context(), log).Result())(t); {
		case length > longest:
			longest = length
		case length < 2: // it goes on, so that usual.lua need not tell that it began one
			emptied++
			check.Equal(t, length, 1, "bytes of the log once it is emptied")
			check.Equal(t, must.Get(admin.PTTL(t.Context(), log).Result())(t) > 0, true, "that the log expires")
		}
	}
	check.Equal(t, emptied > 0, true, "that the log was emptied")
	if longest < 8000 || longest > 32768+64 {
		t.Errorf("the log of %d runs had up to %d bytes, want little more than 32768, after which it is emptied", runs, longest)
	}
	check.Equal(t, f.units(), runs*each, "units in the history")
	check.Equal(t, must.Get(admin.Exists(t.Context(), log).Result())(t), 0, "the log after a read")
	check.Equal(t, f.units(), runs*each, "units in the history, read again")
}
