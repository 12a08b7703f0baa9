package budget_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

var (
	ofRun = budget.Labels{Job: "pull", Region: "US", Run: "pull/1/US"}
	inRun = budget.Run{Labels: ofRun, Fence: 7}
)

// What a call says comes before the run of the environment.
func TestARunCompletesACall(t *testing.T) {
	for name, c := range map[string]struct {
		call, want budget.Call
	}{
		"nothing":         {budget.Call{}, budget.Call{Labels: ofRun, Fence: 7}},
		"its job":         {budget.Call{Labels: budget.Labels{Job: "pull"}}, budget.Call{Labels: ofRun, Fence: 7}},
		"another job":     {budget.Call{Labels: budget.Labels{Job: "push"}}, budget.Call{Labels: budget.Labels{Job: "push", Region: "US", Run: "pull/1/US"}}},
		"another region":  {budget.Call{Labels: budget.Labels{Region: "GB"}}, budget.Call{Labels: budget.Labels{Job: "pull", Region: "GB", Run: "pull/1/US"}, Fence: 7}},
		"another run":     {budget.Call{Labels: budget.Labels{Run: "mine"}}, budget.Call{Labels: budget.Labels{Job: "pull", Region: "US", Run: "mine"}, Fence: 7}},
		"another pass":    {budget.Call{Fence: 8}, budget.Call{Labels: ofRun, Fence: 8}},
		"all by the call": {budget.Call{Labels: budget.Labels{Job: "a", Region: "b", Run: "c"}, Fence: 9}, budget.Call{Labels: budget.Labels{Job: "a", Region: "b", Run: "c"}, Fence: 9}},
	} {
		call := c.call
		inRun.Complete(&call)
		check.Equal(t, call, c.want, name)
		call = c.call
		budget.Run{}.Complete(&call)
		check.Equal(t, call, c.call, name, "outside of a run")
	}
}

func TestRunFrom(t *testing.T) {
	env := map[string]string{"QUOTACTL_JOB": "pull", "QUOTACTL_REGION": "US", "QUOTACTL_RUN": "pull/1/US", "QUOTACTL_FENCE": "7"}
	look := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	check.Equal(t, must.Get(budget.RunFrom(look))(t), inRun)
	env["QUOTACTL_FENCE"] = ""
	check.Equal(t, must.Get(budget.RunFrom(look))(t), budget.Run{Labels: ofRun})
	env["QUOTACTL_FENCE"] = "x"
	_, err := budget.RunFrom(look)
	check.Is(t, err, budget.ErrInvalid)
	clear(env)
	check.Equal(t, must.Get(budget.RunFrom(look))(t), budget.Run{})
}

// passes are a store's document of the job pull.
type passes struct {
	*memstore.Store
	asked int
	down  bool
}

func (p *passes) Job(ctx context.Context, job string) (driver.JobDocument, error) {
	p.asked++
	if p.down {
		return driver.JobDocument{}, budget.ErrUnavailable
	}
	return p.Store.Job(ctx, job)
}

func (p *passes) are(t *testing.T, newest int64, active, dead []int64) {
	t.Helper()
	type claim struct {
		Fence int64 `json:"fence"`
	}
	var claims []claim
	for _, fence := range active {
		claims = append(claims, claim{fence})
	}
	text := must.Get(json.Marshal(map[string]any{"fence": newest, "active": claims, "dead": dead}))(t)
	found := must.Get(p.Store.Job(t.Context(), "pull"))(t)
	must.Equal(t, must.Get(p.SwapJob(t.Context(), driver.JobSwap{Job: "pull", Version: found.Version, Text: text}))(t), true)
}

// Every way to charge completes its calls, while the pass lives: after its end they carry
// the job and the region alone, and one that was declared dead is charged nothing.
func TestChargesCarryTheRunWhileItsPassLives(t *testing.T) {
	ways := map[string]func(context.Context, *budget.Budget) error{
		"charge": func(ctx context.Context, b *budget.Budget) error {
			return check.Err(b.Charge(ctx, budget.Call{Operation: "get"}))
		},
		"wait": func(ctx context.Context, b *budget.Budget) error {
			return check.Err(b.Wait(ctx, budget.Call{Operation: "get"}))
		},
		"reserve": func(ctx context.Context, b *budget.Budget) error {
			return check.Err(b.Reserve(ctx, budget.Call{Operation: "get"}, time.Minute))
		},
		"wait and reserve": func(ctx context.Context, b *budget.Budget) error {
			return check.Err(b.WaitReserve(ctx, budget.Call{Operation: "get"}, time.Minute))
		},
		"lease": func(ctx context.Context, b *budget.Budget) error {
			l, err := b.Lease(ctx, budget.Call{Operation: "get"}, 1, time.Hour)
			if err != nil {
				return err
			}
			return errors.Join(l.Take(ctx, 1), l.Close(ctx))
		},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &passes{Store: memstore.New(func() int64 { return time.Now().UnixMicro() })}
				b := must.Get(budget.New(store, budget.Spec{
					Name: "up/key", Unknown: budget.Unknown{Allowed: true, Units: 1},
					Limits: []limit.Limit{{Name: "day", Quota: 100, Limit: 100, Counts: limit.CountUnits, Window: limit.RollingWindow(24 * time.Hour)}},
				}, budget.WithRun(inRun)))(t)
				spent := func(by budget.GroupBy, name string, want int64) {
					t.Helper()
					rows := must.Get(b.Spent(t.Context(), by, 0))(t).Rows
					i := slices.IndexFunc(rows, func(r budget.SpentRow) bool { return r.Name == name })
					if got := append(rows, budget.SpentRow{})[max(i, 0)].Units; got != want {
						t.Errorf("%s has %d units, want %d: %v", name, got, want, rows)
					}
				}
				must.Do(t, way(t.Context(), b)) // no document: the pass is none of this store
				store.are(t, 7, []int64{7}, nil)
				time.Sleep(time.Minute)
				must.Do(t, way(t.Context(), b))
				spent(budget.ByRun, ofRun.Run, 2)
				store.down = true
				time.Sleep(time.Minute)
				must.Do(t, way(t.Context(), b))
				spent(budget.ByRun, ofRun.Run, 3)
				asked := store.asked
				must.Do(t, way(t.Context(), b))
				must.Equal(t, store.asked, asked, "the store was asked … times")
				store.down = false
				must.Do(t, b.Fence(t.Context(), "pull", 7))
				store.are(t, 8, nil, []int64{7})
				time.Sleep(time.Minute)
				check.Is(t, way(t.Context(), b), budget.ErrFenced, "declared dead")

				b = b.InRun(budget.Run{Labels: ofRun, Fence: 6})
				must.Do(t, way(t.Context(), b))
				spent(budget.ByRun, ofRun.Run, 4)
				spent(budget.ByJob, "pull", 5)
				spent(budget.ByRegion, "US", 5)
			})
		})
	}
}

// As many dead passes as a document keeps hide what became of those before.
func TestWhetherAPassHasEnded(t *testing.T) {
	read := func(text string) budget.Passes {
		return must.Get(budget.PassesOf(driver.JobDocument{Text: []byte(text)}))(t)
	}
	few := read(`{"fence":9,"active":[{"fence":8}],"dead":[4,6]}`)
	for fence, want := range map[int64]bool{3: true, 4: false, 5: true, 6: false, 8: false, 9: true, 10: false} {
		check.Equal(t, few.Ended(fence), want, fence)
	}
	dead := []string{"10"}
	for i := range budget.KeptDead - 1 {
		dead = append(dead, strconv.Itoa(12+i))
	}
	many := read(`{"fence":99,"dead":[` + strings.Join(dead, ",") + `]}`)
	check.Equal(t, many.Ended(3), false, "before the dead")
	check.Equal(t, many.Ended(11), true, "among the dead")
	check.Equal(t, check.Err(budget.PassesOf(driver.JobDocument{Text: []byte("x")})) != nil, true, "a damaged document")
}
