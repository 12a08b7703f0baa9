package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
	"github.com/quotactl/quotactl/jobs"
)

// awaiting is a store that fails some tries before it answers.
type awaiting struct {
	tries []error // the errors of the first tries; then it answers
	log   bytes.Buffer
	asked int
}

var errNotYet = fmt.Errorf("%w: connection refused", budget.ErrUnavailable)

// The daemon retries every five seconds. It logs the error only when that changes; another
// local port is no change.
func TestTheDaemonAwaitsItsStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timeout := func(port int) error {
			return fmt.Errorf("%w: read tcp 127.0.0.1:%d->127.0.0.1:6379: i/o timeout", budget.ErrUnavailable, port)
		}
		w := &awaiting{tries: []error{errNotYet, errNotYet, errNotYet, timeout(40001), timeout(40002)}}
		began := time.Now()
		store, err := w.await(t.Context(), nil)
		if err != nil || store == nil {
			t.Fatal(store, err)
		}
		if took := time.Since(began); w.asked != 6 || took != 25*time.Second {
			t.Errorf("%d tries in %s, want 6 in 25s", w.asked, took)
		}
		if n := strings.Count(w.log.String(), "level=ERROR"); n != 2 {
			t.Errorf("said %d times, want once for each cause:\n%s", n, &w.log)
		}
		if !strings.Contains(w.log.String(), "within reach again") {
			t.Errorf("its return is not said:\n%s", &w.log)
		}
	})
}

func TestTheDaemonAwaitsNoStoreThatNeverServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &awaiting{tries: []error{errNotYet, fmt.Errorf("%w: wrong password", budget.ErrStoreConfig)}}
		if _, err := w.await(t.Context(), nil); !errors.Is(err, budget.ErrStoreConfig) || w.asked != 2 {
			t.Errorf("after %d tries: %v", w.asked, err)
		}
	})
}

func TestAWaitForTheStoreEndsWithTheSignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &awaiting{tries: make([]error, 100)}
		for i := range w.tries {
			w.tries[i] = errNotYet
		}
		drain := make(chan struct{})
		time.AfterFunc(12*time.Second, func() { close(drain) })
		if store, err := w.await(t.Context(), drain); store != nil || err != nil || w.asked != 3 {
			t.Errorf("drained after %d tries: %v, %v", w.asked, store, err)
		}
		ctx, halt := context.WithCancelCause(t.Context())
		second := errors.New("second signal")
		time.AfterFunc(7*time.Second, func() { halt(second) })
		check.Is(t, check.Err(w.await(ctx, nil)), second, "halted")
	})
}

func (w *awaiting) await(ctx context.Context, drain <-chan struct{}) (open.Backend, error) {
	return await(ctx, drain, slog.New(slog.NewTextHandler(&w.log, nil)), func(context.Context) (open.Backend, error) {
		w.asked++
		if w.asked <= len(w.tries) {
			return nil, w.tries[w.asked-1]
		}
		return memstore.New(func() int64 { return time.Now().UnixMicro() }), nil
	})
}

// Once a daemon has its store, it has a connection to it: the first charge makes none.
func TestTheStoreIsConnectedBeforeTheDaemonListens(t *testing.T) {
	server := redistest.Start(t)
	inspect := server.Client()
	accepted := func() string {
		return must.Get(inspect.InfoMap(t.Context(), "stats").Result())(t)["Stats"]["total_connections_received"]
	}
	d := living(t, nil)
	cfg, list, err := d.Read()
	must.Do(t, err)
	for name, list := range map[string][]*jobs.Job{"charges alone": nil, "jobs": list} {
		store, err := d.OpenStore(t.Context(), nil, cfg, list, func(ctx context.Context) (open.Backend, error) {
			return open.Store(ctx, server.URL(0), cfg.Store)
		})
		must.Do(t, err)
		before := accepted()
		b := must.Get(open.BudgetOn(store, cfg, server.URL(0), "shop/main"))(t)
		must.Get(b.Charge(t.Context(), budget.Call{Operation: "get"}))(t)
		check.Equal(t, accepted(), before, name, "connections that the server has accepted")
		must.Do(t, store.Close())
	}
}
