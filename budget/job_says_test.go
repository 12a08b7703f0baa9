package budget_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/must"
)

const twoUpstreams = `
[upstream.a.costs]
get = 10
[upstream.a.limit.all]
limit  = 100
window = "24h"
[upstream.a.credential.one]
[upstream.a.credential.two]
[upstream.b.costs]
get = 1
[upstream.b.limit.all]
limit  = 5
window = "24h"
[upstream.b.credential.one]
[job.backfill]
budget         = "a/one"
floor          = 60
on_store_error = "open"
max_wait       = "20s"
[job.plain]
budget = "b/one"
`

// What a job says is known of every budget; its floor is in the units of its own
// upstream, and holds for all credentials of that.
func TestJobSaysByUpstream(t *testing.T) {
	path := filepath.Join(t.TempDir(), "costs.toml")
	must.Do(t, os.WriteFile(path, []byte(twoUpstreams), 0o600))
	cfg := must.Get(config.Load(path))(t)
	wait := 20 * time.Second
	for name, floor := range map[string]int64{"a/one": 60, "a/two": 60, "b/one": 0} {
		spec := must.Get(cfg.Spec(name))(t)
		want := map[string]budget.JobSays{"backfill": {Floor: floor, OnStoreError: budget.Open, MaxWait: &wait}}
		if !reflect.DeepEqual(spec.Jobs, want) {
			t.Errorf("%s: %+v, want %+v", name, spec.Jobs, want)
		}
	}
}

// A wait lasts as long as the job says where the context has no deadline; one that has
// comes first.
func TestWaitAsTheJobSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wait := 20 * time.Second
		b := must.Get(budget.New(memstore.New(func() int64 { return time.Now().UnixMicro() }), budget.Spec{
			Name:   "a/one",
			Costs:  map[string]budget.Cost{"get": {Units: 10}},
			Limits: []limit.Limit{{Name: "all", Limit: 10, Counts: limit.CountUnits, Window: limit.Window{Kind: limit.Rolling, Length: time.Minute.Microseconds()}}},
			Jobs:   map[string]budget.JobSays{"backfill": {MaxWait: &wait}},
		}))(t)
		call := budget.Call{Operation: "get", Labels: budget.Labels{Job: "backfill"}}
		began := time.Now()
		at := func(what string, want time.Duration, err, wantErr error) {
			t.Helper()
			if took := time.Since(began).Round(waitSlack); took != want || !errors.Is(err, wantErr) || (err == nil) != (wantErr == nil) {
				t.Errorf("%s: %v after %s, want %v after %s", what, err, took, wantErr, want)
			}
		}
		_, err := b.Wait(t.Context(), call)
		at("the first", 0, err, nil)
		_, err = b.Wait(t.Context(), call)
		at("too far", 0, err, context.DeadlineExceeded)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		_, err = b.Wait(ctx, call)
		at("with a deadline", time.Minute, err, nil)
		time.Sleep(45 * time.Second)
		_, err = b.Wait(t.Context(), call)
		at("near", 2*time.Minute, err, nil)
		wait = 0
		_, err = b.Wait(t.Context(), call)
		at("without patience", 2*time.Minute, err, budget.ErrExhausted)
	})
}

// waitSlack is more than a waiter sleeps past the instant its call fits.
const waitSlack = time.Second
