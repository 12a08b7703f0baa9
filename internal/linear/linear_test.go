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
	"github.com/quotactl/quotactl/internal/effort"
)

func plan(t *testing.T, store driver.Store) Plan {
	limits := Limits(300, 6)
	return Plan{
		Seed: effort.Seed(t), Clients: 6, Ops: 400, Budgets: []string{"up/a", "up/b"}, Limits: limits,
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

func (l *lossy) Finish(ctx context.Context, f driver.Finishes) ([]driver.Finished, error) {
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
	take := func(units, calls int64, a Answer) step {
		return step{Op{Kind: Take, Budget: "up/a", ID: "h", Units: units, Calls: calls}, a}
	}
	end := func(held Held) step {
		return step{Op{Kind: End, Budget: "up/a", ID: "h"}, Answer{Known: true, Held: held}}
	}
	drawing := func(id string, units int64, lease bool, a Answer) step {
		op := charge(id, units, lease)
		op.Hold = "h"
		return step{op, a}
	}
	held := func(units, calls, open int64, held Held) step {
		return step{status, Answer{Known: true, Used: [3]int64{units, calls, open}, Held: held}}
	}
	refused := func(remaining int64) Answer { return Answer{Known: true, Result: driver.Refused, Remaining: remaining} }
	hold6 := take(6, 2, granted(6, 1, 4))
	open9 := drawing("a", 9, true, granted(9, 2, 1)) // 6 drawn
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
		"beside a hold":             {[]step{hold6, {charge("b", 5, false), refused(4)}, {charge("b", 4, false), granted(4, 2, 0)}}, true},
		"held does not count":       {[]step{hold6, {charge("b", 5, false), granted(5, 2, 5)}}, false},
		"held is remaining":         {[]step{hold6, {charge("b", 4, false), granted(4, 2, 6)}}, false},
		"held too much":             {[]step{a6, take(5, 2, granted(5, 2, 0))}, false},
		"hold refused":              {[]step{a6, take(5, 2, refused(4)), used(6, 1, 0)}, true},
		"hold refused without need": {[]step{a6, take(4, 2, refused(4))}, false},
		"hold never fits":           {[]step{take(11, 2, Answer{Known: true, Result: driver.NeverFits})}, true},
		"hold unseen":               {[]step{hold6, used(0, 0, 0)}, false},
		"drawn":                     {[]step{hold6, drawing("b", 5, false, granted(5, 2, 4)), held(5, 1, 0, Held{1, 1, 1})}, true},
		"drawn and charged beside":  {[]step{hold6, drawing("b", 5, false, granted(5, 2, 0))}, false},
		"the rest drawn":            {[]step{hold6, drawing("b", 8, false, granted(8, 2, 2)), held(8, 1, 0, Held{1, 0, 1})}, true},
		"drawn in full":             {[]step{a6, take(4, 2, granted(4, 2, 0)), drawing("b", 4, false, granted(4, 3, 0))}, true},
		"drawn beyond it":           {[]step{a6, take(4, 2, granted(4, 2, 0)), drawing("b", 5, false, refused(0))}, true},
		"draw refused by held":      {[]step{hold6, drawing("b", 6, false, refused(4))}, false},
		"ended":                     {[]step{hold6, end(Held{1, 6, 2}), {charge("b", 10, false), granted(10, 2, 0)}}, true},
		"ended and its answer lost": {[]step{hold6, end(Held{}), {charge("b", 10, false), granted(10, 2, 0)}}, true},
		"ended and kept":            {[]step{hold6, end(Held{}), held(0, 0, 0, Held{1, 6, 2})}, false},
		"ended with what was drawn": {[]step{hold6, drawing("b", 5, false, granted(5, 2, 4)), end(Held{1, 6, 2})}, false},
		"ended twice":               {[]step{hold6, end(Held{1, 6, 2}), end(Held{1, 6, 2})}, false},
		"drawn after its end":       {[]step{hold6, end(Held{1, 6, 2}), drawing("b", 5, false, granted(5, 2, 5)), used(5, 1, 0)}, true},
		"overdrawn and settled":     {[]step{hold6, open9, {settle, finished(driver.Settled, false, 3)}, held(3, 1, 0, Held{1, 3, 1})}, true},
		"units beside given back":   {[]step{hold6, open9, {settle, finished(driver.Settled, false, 3)}, held(3, 1, 0, Held{1, 6, 1})}, false},
		"drawn and settled above":   {[]step{hold6, drawing("a", 2, true, granted(2, 2, 4)), {settle, finished(driver.Settled, false, 3)}, held(3, 1, 0, Held{1, 3, 1})}, true},
		"held is counted twice":     {[]step{hold6, drawing("a", 2, true, granted(2, 2, 4)), {settle, finished(driver.Settled, false, 3)}, held(3, 1, 0, Held{1, 4, 1})}, false},
		"drawn and released":        {[]step{hold6, open9, {release, finished(driver.Released, false, 3)}, held(0, 0, 0, Held{1, 6, 2})}, true},
		"released and still drawn":  {[]step{hold6, open9, {release, finished(driver.Released, false, 3)}, held(0, 0, 0, Held{1, 0, 1})}, false},
		"released after the end":    {[]step{hold6, open9, end(Held{1, 0, 1}), {release, finished(driver.Released, false, 3)}, used(0, 0, 0)}, true},
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
