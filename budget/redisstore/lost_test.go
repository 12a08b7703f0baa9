package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// The charges of a run on which answers are lost, and the time one may take.
var lossyCharges = effort.Of(1000, 2000, 5000)

const (
	lossyClients = 8
	lossyPercent = 30
	lossyTimeout = 150 * time.Millisecond // at first
)

// wide limits refuse nothing here.
var wide = []limit.Limit{{Name: "hour", Limit: 1_000_000, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)}}

// lossy are proxies before so many servers, silent as yet.
func lossy(t testing.TB, n int) []*proxy {
	t.Helper()
	first, all := effort.Seed(t), make([]*proxy, n)
	for i := range all {
		all[i] = startProxy(t, "", first+uint64(i), 120*time.Millisecond)
	}
	return all
}

// wanted is one charge as the test asked for it, and the store's answer.
type wanted struct {
	budget, id string
	units, at  int64 // at: 0 while its outcome is unknown
}

func (w *wanted) item() driver.Item {
	return driver.Item{ID: w.id, Operation: "op", Units: w.units}
}

// askFor sends one charge. An outcome that is unknown is left so; any other
// answer than a grant is wrong.
func (w *wanted) askFor(t testing.TB, store *redisstore.Store) {
	got, err := store.Decide(context.Background(), driver.Batch{Budget: w.budget, Now: time.Now().UnixMicro(), Limits: wide, Items: []driver.Item{w.item()}})
	if err == nil {
		err = got.Items[0].Err
	}
	switch {
	case errors.Is(err, driver.ErrUnavailable):
	case err != nil:
		t.Errorf("charge %s of %s: %v", w.id, w.budget, err)
	case got.Items[0].Result == driver.Late, got.Items[0].Result == driver.Interrupted:
	case got.Items[0].Result != driver.Granted || got.Items[0].Units != w.units:
		t.Errorf("charge %s of %s: %+v, want %d units granted", w.id, w.budget, got.Items[0], w.units)
	default:
		w.at = got.Items[0].At
	}
}

// sendAgain sends charges of one budget again, all of which must be granted.
func sendAgain(t testing.TB, store *redisstore.Store, charges []*wanted) []driver.Decision {
	t.Helper()
	batch := driver.Batch{Budget: charges[0].budget, Now: time.Now().UnixMicro(), Limits: wide}
	for _, w := range charges {
		batch.Items = append(batch.Items, w.item())
	}
	got := must.Get(store.Decide(t.Context(), batch))(t)
	for i, d := range got.Items {
		must.Equal(t, d.Result, driver.Granted, "charge", charges[i].id, "of", charges[i].budget, "again")
		must.Equal(t, d.Units, charges[i].units, "charge", charges[i].id, "of", charges[i].budget, "again")
	}
	return got.Items
}

// loseAnswers charges from many clients while answers are lost, then heals,
// sends what is unknown again, and wants each id in the ledgers once.
func loseAnswers(t *testing.T, url string, proxies []*proxy, budgets []string, ledger func(budget string) map[string]int64) {
	t.Helper()
	all := make([][]wanted, lossyClients)
	round := 0
	inTime(t, lossyTimeout, func(timeout time.Duration) error {
		round++
		for _, p := range proxies {
			p.percent.Store(lossyPercent)
		}
		var granted atomic.Int64
		var clients sync.WaitGroup
		for c := range all {
			store := openStore(t, url, redisstore.Options{Timeout: timeout})
			clients.Go(func() {
				for i := range lossyCharges / lossyClients {
					w := wanted{budget: budgets[(c+i)%len(budgets)], id: fmt.Sprint(round, "-", c, "-", i), units: int64(1 + (c+i)%5)}
					w.askFor(t, store)
					all[c] = append(all[c], w)
					if w.at != 0 {
						granted.Add(1)
					}
				}
			})
		}
		clients.Wait()
		for _, p := range proxies {
			p.percent.Store(0)
		}
		if n := granted.Load(); n < int64(lossyCharges)/4 {
			return fmt.Errorf("%d of %d charges were granted: %w", n, lossyCharges, driver.ErrUnavailable)
		}
		return nil
	})
	spoilt, scripts := int64(0), int64(0)
	for _, p := range proxies {
		spoilt, scripts = spoilt+p.spoilt(), scripts+p.scripts.Load()
		t.Log(p)
	}
	if spoilt*100 < scripts*(lossyPercent-5) {
		t.Errorf("%d of %d answers were spoilt, want %d %%", spoilt, scripts, lossyPercent)
	}
	healed := openStore(t, url, redisstore.Options{})
	unknown, charged, units, asked := 0, 0, map[string]int64{}, map[string]map[string]int64{}
	for _, name := range budgets {
		var sent []*wanted
		asked[name] = map[string]int64{}
		for c := range all {
			for i := range all[c] {
				if w := &all[c][i]; w.budget == name {
					sent = append(sent, w)
					asked[name][w.id] = w.units
					units[name] += w.units
				}
			}
		}
		for again := range slices.Chunk(sent, driver.MaxBatch) {
			for i, d := range sendAgain(t, healed, again) {
				switch w := again[i]; {
				case w.at != 0 && (!d.Replayed || d.At != w.at):
					t.Errorf("charge %s of %s was granted at %d, and again as %+v", w.id, name, w.at, d)
				case w.at == 0:
					unknown++
					if d.Replayed {
						charged++
					}
				}
			}
		}
	}
	t.Logf("of %d charges %d were unknown; %d of these had been charged", round*lossyCharges, unknown, charged)
	if unknown == 0 || charged == 0 {
		t.Error("no outcome was left unknown: the test does not test what is sent again")
	}
	for _, name := range budgets {
		if got := ledger(name); !maps.Equal(got, asked[name]) {
			t.Errorf("the ledger of %s has %d charges, asked were %d, or other ones", name, len(got), len(asked[name]))
		}
		view, err := healed.Look(t.Context(), driver.Look{Budget: name, Now: time.Now().UnixMicro(), Limits: wide})
		if err != nil || view.Limits[0].Used != units[name] {
			t.Errorf("%s: %+v, %v; want %d units used", name, view, err, units[name])
		}
	}
}

func TestLostAnswers(t *testing.T) {
	t.Parallel()
	proxies := lossy(t, 1)
	server := redistest.Start(t)
	proxies[0].target.Store(&server.Addr)
	admin := server.Client()
	loseAnswers(t, "redis://"+proxies[0].addr, proxies, []string{name}, func(budget string) map[string]int64 {
		return ledgerOf(t, admin, budget)
	})
}

func TestLostAnswersSentinel(t *testing.T) {
	t.Parallel()
	proxies := lossy(t, 1)
	r := startReplicated(t, proxies[0])
	admin, replica := r.master.Client(), r.replica.Client()
	defer func() { _ = admin.Close(); _ = replica.Close() }()
	loseAnswers(t, r.url(), proxies, []string{name}, func(budget string) map[string]int64 {
		must.Equal(t, must.Get(admin.Wait(t.Context(), 1, 20*time.Second).Result())(t), 1, "replicas have all")
		held := ledgerOf(t, admin, budget)
		if copied := ledgerOf(t, replica, budget); !maps.Equal(copied, held) {
			t.Errorf("the replica has %d charges, the master %d, or other ones", len(copied), len(held))
		}
		return held
	})
}

func TestLostAnswersCluster(t *testing.T) {
	t.Parallel()
	proxies := lossy(t, 3)
	n := startCluster(t, 3, proxies)
	var budgets []string
	for i := range 6 {
		budgets = append(budgets, fmt.Sprint("up/key", i))
	}
	loseAnswers(t, n.url(), proxies, budgets, func(budget string) map[string]int64 {
		return ledgerOf(t, n.admins[n.owner(t, n.slotOf(t, budget))], budget)
	})
	for _, p := range proxies {
		if p.spoilt() == 0 {
			t.Error("a node had no part in it")
		}
	}
}
