package linear

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/memstore"
)

func plan(t *testing.T, store driver.Store) Plan {
	limits := Limits(300, 6)
	return Plan{
		Seed: Seed(t), Clients: 6, Ops: 400, Budgets: []string{"up/a", "up/b"}, Limits: limits,
		Try: func(_ int, op Op, _ int) (Answer, error) { return Ask(store, limits, op, time.Minute) },
	}
}

// lossy loses the answers to some calls, after they were applied.
type lossy struct {
	driver.Store
	mu  sync.Mutex
	rng *rand.Rand
}

func newLossy() *lossy {
	return &lossy{Store: memstore.New(func() int64 { return time.Now().UnixMicro() }), rng: rand.New(rand.NewPCG(1, 2))}
}

func (l *lossy) lost() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rng.IntN(5) == 0 {
		return fmt.Errorf("the answer was lost: %w", driver.ErrUnavailable)
	}
	return nil
}

func (l *lossy) Decide(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
	got, err := l.Store.Decide(ctx, b)
	if err == nil {
		err = l.lost()
	}
	return got, err
}

func (l *lossy) Finish(ctx context.Context, f driver.Finish) (driver.Finished, error) {
	got, err := l.Store.Finish(ctx, f)
	if err == nil {
		err = l.lost()
	}
	return got, err
}

func TestModelIsLinearizable(t *testing.T) {
	h := Run(t, plan(t, newLossy()))
	if h.Unknown < 20 {
		t.Fatalf("only %d answers were lost of %d: the test shows nothing", h.Unknown, h.Tries)
	}
	Check(t, h)
}

func TestWithoutIDsIsFlagged(t *testing.T) {
	p := plan(t, WithoutIDs(newLossy()))
	p.ChargesOnly = true
	CheckFlagged(t, Run(t, p))
	p = plan(t, newLossy()) // which it is for the lost ids only
	p.ChargesOnly = true
	Check(t, Run(t, p))
}

func TestLaggingStatusIsFlagged(t *testing.T) {
	CheckFlagged(t, Run(t, plan(t, Lagging(newLossy()))))
}

// Histories of one client after the other, each wrong in one place.
func TestWrongAnswersAreFlagged(t *testing.T) {
	limits := Limits(10, 1)
	charge := func(id string, units int64, lease bool) Op {
		return Op{Kind: Charge, Budget: "up/a", ID: id, Units: units, Lease: lease}
	}
	status := Op{Kind: Status, Budget: "up/a"}
	granted := func(units, at, remaining int64) Answer {
		return Answer{Known: true, Result: driver.Granted, Units: units, At: at, Remaining: remaining}
	}
	replayed := func(units, at int64) Answer {
		return Answer{Known: true, Result: driver.Granted, Units: units, At: at, Replayed: true}
	}
	settle := Op{Kind: Settle, Budget: "up/a", ID: "a", Units: 3}
	release := Op{Kind: Release, Budget: "up/a", ID: "a"}
	finished := func(result driver.FinishResult, replayed bool, at int64) Answer {
		return Answer{Known: true, Finish: result, Replayed: replayed, At: at}
	}
	type step struct {
		op Op
		a  Answer
	}
	used := func(units, calls, open int64) step {
		return step{status, Answer{Known: true, Used: [3]int64{units, calls, open}}}
	}
	a6 := step{charge("a", 6, false), granted(6, 1, 4)}
	open6 := step{charge("a", 6, true), granted(6, 1, 4)}
	for name, c := range map[string]struct {
		steps []step
		right bool
	}{
		"right":                     {[]step{a6, {charge("b", 4, false), granted(4, 2, 0)}, used(10, 2, 0)}, true},
		"over":                      {[]step{a6, {charge("b", 5, false), granted(5, 2, 0)}}, false},
		"refused without need":      {[]step{a6, {charge("b", 4, false), Answer{Known: true, Result: driver.Refused, Remaining: 4}}}, false},
		"refused":                   {[]step{a6, {charge("b", 5, false), Answer{Known: true, Result: driver.Refused, Remaining: 4}}}, true},
		"remaining":                 {[]step{{charge("a", 6, false), granted(6, 1, 5)}}, false},
		"clock backwards":           {[]step{a6, {charge("b", 1, false), granted(1, 1, 3)}}, false},
		"replayed":                  {[]step{a6, {charge("a", 6, false), replayed(6, 1)}, used(6, 1, 0)}, true},
		"replay with another time":  {[]step{a6, {charge("a", 6, false), replayed(6, 2)}}, false},
		"charged twice":             {[]step{a6, {charge("a", 6, false), replayed(6, 1)}, used(12, 2, 0)}, false},
		"forgotten":                 {[]step{a6, {charge("a", 6, false), granted(6, 2, 4)}}, false},
		"lost":                      {[]step{a6, used(0, 0, 0)}, false},
		"other call, same id":       {[]step{a6, {charge("a", 5, false), replayed(6, 1)}}, false},
		"conflict":                  {[]step{a6, {charge("a", 5, false), Answer{Known: true, Result: driver.Conflict}}}, true},
		"conflict with nothing":     {[]step{{charge("a", 5, false), Answer{Known: true, Result: driver.Conflict}}}, false},
		"settled":                   {[]step{open6, used(6, 1, 1), {settle, finished(driver.Settled, false, 2)}, used(3, 1, 0)}, true},
		"settled to nothing":        {[]step{open6, {settle, finished(driver.Settled, false, 2)}, used(6, 1, 0)}, false},
		"released":                  {[]step{open6, {release, finished(driver.Released, false, 2)}, used(0, 0, 0)}, true},
		"released and kept":         {[]step{open6, {release, finished(driver.Released, false, 2)}, used(6, 1, 0)}, false},
		"released after settlement": {[]step{open6, {settle, finished(driver.Settled, false, 2)}, {release, finished(driver.Released, false, 3)}}, false},
		"settled twice":             {[]step{open6, {settle, finished(driver.Settled, false, 2)}, {settle, finished(driver.Settled, true, 2)}}, true},
		"settled anew":              {[]step{open6, {settle, finished(driver.Settled, false, 2)}, {settle, finished(driver.Settled, false, 3)}}, false},
		"two open":                  {[]step{open6, {charge("b", 1, true), granted(1, 2, 3)}}, false},
		"finish of nothing":         {[]step{{settle, finished(driver.FinishExpired, false, 0)}}, true},
	} {
		h := &History{limits: limits}
		for i, s := range c.steps {
			h.ops = append(h.ops, porcupine.Operation{Input: asked{Op: s.op}, Output: s.a, Call: int64(10 * i), Return: int64(10*i + 5)})
		}
		if result := h.result(); (result == porcupine.Ok) != c.right {
			t.Errorf("%s: %s", name, result)
		}
	}
}
