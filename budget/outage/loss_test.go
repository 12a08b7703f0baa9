package outage_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/outage"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// lossy is a server that is about to lose something, and what is on it.
type lossy struct {
	t      *testing.T
	server *redistest.Server
	proxy  *redistest.Proxy
	other  *redistest.Server // where the proxy leads after a failover
	admin  *redis.Client
}

const lossBudget = "up/key1"

// losses are the ways in which a store loses data. Each is given what is done
// before the last charges, and what loses them or more.
var losses = map[string]struct {
	args   []string
	before func(*lossy)
	lose   func(*lossy)
}{
	"flushed": {lose: func(l *lossy) { must.Do(l.t, l.admin.FlushAll(l.t.Context()).Err()) }},
	"m lost":  {lose: loseKey("m")}, "e lost": {lose: loseKey("e")}, "z lost": {lose: loseKey("z:1")},
	"evicted": {lose: func(l *lossy) {
		// Only keys that expire may be evicted: all that are left are the budget's.
		must.Do(l.t, l.admin.ConfigSet(l.t.Context(), "maxmemory-policy", "volatile-random").Err())
		must.Do(l.t, l.admin.ConfigSet(l.t.Context(), "maxmemory", "2mb").Err())
		for i := 0; ; i++ {
			if err := l.admin.Set(l.t.Context(), fmt.Sprint("junk", i), strings.Repeat("x", 20_000), 0).Err(); err != nil {
				break // out of memory, with nothing left to evict
			}
		}
		must.Do(l.t, l.admin.ConfigSet(l.t.Context(), "maxmemory", "0").Err())
	}},
	"restarted without persistence": {lose: func(l *lossy) { l.restart() }},
	"an older snapshot": {
		before: func(l *lossy) {
			must.Do(l.t, l.admin.Save(l.t.Context()).Err())
			data, err := os.ReadFile(filepath.Join(l.server.Dir(), "dump.rdb"))
			must.Do(l.t, err)
			must.Do(l.t, os.WriteFile(filepath.Join(l.server.Dir(), "old.rdb"), data, 0o600))
		},
		lose: func(l *lossy) {
			l.server.SetArgs("--dbfilename", "old.rdb")
			l.restart()
		},
	},
	"a replica that lacks the newest": {
		before: func(l *lossy) {
			link := redistest.StartProxy(l.t, l.server.Addr, 1)
			host, port, _ := strings.Cut(link.Addr, ":")
			l.other = redistest.Start(l.t, "--replicaof", host, port)
			replica := l.other.Client()
			redistest.Await(l.t, "the replica has it all", func() bool {
				info, err := replica.Info(context.Background(), "replication").Result()
				return err == nil && strings.Contains(info, "master_link_status:up")
			})
			link.Lead(redistest.FreeAddress(l.t)) // nowhere
		},
		lose: func(l *lossy) {
			l.server.Kill()
			replica := l.other.Client()
			must.Do(l.t, replica.ReplicaOf(l.t.Context(), "NO", "ONE").Err())
			l.proxy.Lead(l.other.Addr)
		},
	},
}

func loseKey(part string) func(*lossy) {
	return func(l *lossy) {
		n, err := l.admin.Del(l.t.Context(), "quotactl:v1:{"+lossBudget+"}:"+part).Result()
		must.Do(l.t, err)
		must.Equal(l.t, n, 1, "there was no key", part)
	}
}

func (l *lossy) restart() {
	l.server.Kill()
	if !l.server.Start() {
		l.t.Fatal("the server does not start again")
	}
}

// syncBuffer is a log that goroutines write.
type syncBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// redisHost is a budget on a host of its own, on a Redis store.
func redisHost(t *testing.T, url, dir string, spec budget.Spec, o outage.Options) (*budget.Budget, *syncBuffer) {
	t.Helper()
	timeout := cmp.Or(o.Timeout, redisstore.DefaultTimeout)
	store := must.Get(redisstore.Open(t.Context(), url, redisstore.Options{Timeout: timeout}))(t)
	log := &syncBuffer{}
	o.Dir, o.Timeout, o.Log = dir, timeout, slog.New(slog.NewTextHandler(log, nil))
	spec.Timeout = timeout
	host := outage.New(store, o)
	b := must.Get(budget.New(host, spec, budget.WithClosers(host)))(t)
	t.Cleanup(func() { _ = b.Close() })
	return b, log
}

// patient are the options of hosts on a machine that is busy with other tests.
var patient = outage.Options{Timeout: 5 * time.Minute}

// The next decision of a host that had decided before notices what a store lost, logs and
// shows it, and records the missing units: all that is ever granted stays within the limit.
func TestLostData(t *testing.T) {
	t.Parallel()
	spec := budget.Spec{
		Name: lossBudget, Costs: map[string]budget.Cost{"list": {Units: 1}, "search": {Units: 50}},
		Limits: []limit.Limit{
			{Name: "day", Quota: 1100, Headroom: 100, Limit: 1000, Counts: limit.CountUnits, Window: limit.RollingWindow(24 * time.Hour)},
			{Name: "search", Limit: 600, Counts: limit.CountUnits, Window: limit.RollingWindow(24 * time.Hour), Operations: []string{"search"}},
		},
	}
	for name, loss := range losses {
		t.Run(name, func(t *testing.T) {
			l := &lossy{t: t, server: redistest.Start(t)}
			l.proxy = redistest.StartProxy(t, l.server.Addr, 1)
			l.admin = l.server.Client()
			defer func() { _ = l.admin.Close() }()
			url, dirs := "redis://"+l.proxy.Addr, []string{t.TempDir(), t.TempDir()}
			spent := int64(0)
			spend := func(b *budget.Budget, operation string, times int) {
				t.Helper()
				for range times {
					r := must.Get(b.Charge(t.Context(), budget.Call{Operation: operation}))(t)
					spent += r.Units
				}
			}
			first, _ := redisHost(t, url, dirs[0], spec, patient)
			second, _ := redisHost(t, url, dirs[1], spec, patient)
			spend(first, "search", 4)
			spend(second, "list", 30)
			if loss.before != nil {
				loss.before(l)
			}
			spend(first, "list", 20)
			spend(second, "search", 3)
			// Another process of the second host: it knows what the first one left.
			must.Do(t, second.Close())
			loss.lose(l)
			second, log := redisHost(t, url, dirs[1], spec, patient)
			first, _ = redisHost(t, url, dirs[0], spec, patient)
			redistest.Await(t, "the store is there again", func() bool {
				_, err := second.Status(t.Context())
				return err == nil
			})
			status, err := second.Status(t.Context())
			must.Do(t, err)
			if day, search := status.Limits[0], status.Limits[1]; day.Used < spent || search.Used < 350 || day.Recovered == 0 || search.Recovered == 0 {
				t.Fatalf("%d were spent; the status shows %+v and %+v", spent, day, search)
			}
			if !strings.Contains(log.String(), "the store has lost charges") {
				t.Fatalf("the log says\n%s", log.String())
			}
			// Spend all there is, from both hosts.
			for _, b := range []*budget.Budget{first, second} {
				for err = nil; err == nil; {
					var r budget.Receipt
					r, err = b.Charge(t.Context(), budget.Call{Operation: "list"})
					spent += r.Units
				}
				must.Is(t, err, budget.ErrExhausted)
			}
			if spent > 1000 || spent < 800 {
				t.Fatalf("%d units were handed out of 1000", spent)
			}
			t.Logf("%s: %d of 1000 units handed out in all", name, spent)
			// A wanted loss is none.
			store, err := redisstore.Open(t.Context(), url, redisstore.Options{Timeout: patient.Timeout})
			must.Do(t, err)
			defer func() { _ = store.Close() }()
			must.Get(driver.Apply(t.Context(), store, driver.Reset{Budget: lossBudget}))(t)
			must.Equal(t, must.Get(first.Charge(t.Context(), budget.Call{Operation: "list"}))(t).Remaining, 999, "after a reset")
		})
	}
}
