package linear

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/quotactl/quotactl/budget/limit"
)

// Plan says what the clients do.
type Plan struct {
	Seed    uint64
	Clients int
	Ops     int // of all clients together
	Budgets []string
	Limits  []limit.Limit
	// ChargesOnly: only plain charges, each with an id of its own, and looks.
	ChargesOnly bool
	// Try sends an Op once; the client has sent it before times already. The outcome
	// may be unknown.
	Try func(client int, op Op, before int) (Answer, error)
	// Before is called before the Op of this number, by one client at a time.
	Before func(n int)
	// Unknown is called for each unknown outcome.
	Unknown func()
	// Heal ends the faults; it is called before each budget's last status.
	Heal func()
}

// mostTries is how often an Op is sent at most; the faults end before that.
const mostTries = 500

// History is the requests and their answers.
type History struct {
	limits []limit.Limit
	ops    []porcupine.Operation
	// Tries is how often Ops were sent, Unknown how many of these attempts had an
	// unknown outcome.
	Tries, Unknown int64
}

// Run has the clients send random Ops. An Op with an unknown outcome is sent again,
// unchanged, until its outcome is known; it counts as one Op, from its first attempt to
// its last answer.
func Run(t testing.TB, p Plan) *History {
	t.Helper()
	r := &runner{Plan: p, began: time.Now(), ids: map[string][]Op{}, holds: map[string][]string{}, taken: map[string][]string{}}
	each := make([][]porcupine.Operation, p.Clients)
	failed := make([]error, p.Clients)
	var all sync.WaitGroup
	for c := range p.Clients {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(p.Seed, uint64(c)))
			for {
				n := r.n.Add(1)
				if n > int64(p.Ops) || r.failed.Load() {
					return
				}
				r.before(int(n))
				o, err := r.do(c, r.op(rng, n))
				if err != nil {
					r.failed.Store(true)
					failed[c] = err
					return
				}
				each[c] = append(each[c], o)
			}
		})
	}
	all.Wait()
	if p.Heal != nil {
		p.Heal()
	}
	h := &History{limits: p.Limits, ops: slices.Concat(each...)}
	for _, name := range p.Budgets {
		o, err := r.do(0, Op{Kind: Status, Budget: name})
		failed = append(failed, err)
		h.ops = append(h.ops, o)
	}
	for _, err := range failed {
		if err != nil {
			t.Fatal(err)
		}
	}
	h.Tries, h.Unknown = r.tries.Load(), r.unknown.Load()
	return h
}

type runner struct {
	Plan
	began             time.Time
	n, tries, unknown atomic.Int64
	failed            atomic.Bool

	turn sync.Mutex // of Before
	mu   sync.Mutex // guards ids, holds and taken
	ids  map[string][]Op
	// holds are those that somebody takes, taken those that somebody has surely asked for. An
	// End of another hold might come between two attempts to take it, which would then be
	// taken twice.
	holds, taken map[string][]string
}

func (r *runner) before(n int) {
	if r.Before != nil {
		r.turn.Lock()
		defer r.turn.Unlock()
		r.Before(n)
	}
}

// do sends an Op until its outcome is known.
func (r *runner) do(client int, op Op) (porcupine.Operation, error) {
	o := porcupine.Operation{ClientId: client, Input: asked{Op: op}, Call: int64(time.Since(r.began))}
	for before := range mostTries {
		r.tries.Add(1)
		a, err := r.Try(client, op, before)
		if err != nil {
			return o, err
		}
		if a.Known {
			r.took(op)
			o.Output, o.Return = a, int64(time.Since(r.began))
			return o, nil
		}
		r.unknown.Add(1)
		if r.Unknown != nil {
			r.Unknown()
		}
		if op.Kind == Status { // it changes nothing: only its last attempt counts
			o.Call = int64(time.Since(r.began))
		}
	}
	return o, fmt.Errorf("%+v was sent %d times and its outcome is still unknown", op, mostTries)
}

// took notes that a hold was taken or refused.
func (r *runner) took(op Op) {
	if op.Kind == Take {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.taken[op.Budget] = append(r.taken[op.Budget], op.ID)
	}
}

// op is a random Op. More than a third of them are new charges, and half of these draw from a
// hold, if there is one; the others look, take and end holds, or refer to charges
// and holds of any client, some of them still under way.
func (r *runner) op(rng *rand.Rand, n int64) Op {
	op := Op{Kind: Charge, Budget: r.Budgets[rng.IntN(len(r.Budgets))], ID: fmt.Sprint("id-", n), Units: rng.Int64N(10), Lease: rng.IntN(3) == 0}
	what := rng.IntN(100)
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.ids[op.Budget]
	if what < 20 {
		return Op{Kind: Status, Budget: op.Budget}
	}
	if r.ChargesOnly {
		op.Lease = false
		return op
	}
	taken := r.taken[op.Budget]
	switch {
	case what < 28:
		r.holds[op.Budget] = append(r.holds[op.Budget], op.ID)
		return Op{Kind: Take, Budget: op.Budget, ID: op.ID, Units: rng.Int64N([]int64{6, 30}[rng.IntN(2)]), Calls: rng.Int64N(4)}
	case what < 33 && len(taken) > 0:
		return Op{Kind: End, Budget: op.Budget, ID: recent(taken, rng)}
	case what < 55 && len(r.holds[op.Budget]) > 0:
		op.Hold, op.Lease = recent(r.holds[op.Budget], rng), rng.IntN(2) == 0
	}
	if what < 70 || len(known) == 0 {
		r.ids[op.Budget] = append(known, op)
		return op
	}
	old := recent(known, rng)
	for range 4 {
		if what >= 78 && !old.Lease { // rather a reservation: nothing else can be finished
			old = recent(known, rng)
		}
	}
	switch {
	case what < 78: // the same again, or another call with its id
		if rng.IntN(3) == 0 {
			old.Units++
		}
		return old
	case what < 90:
		return Op{Kind: Settle, Budget: op.Budget, ID: old.ID, Units: max(0, old.Units-rng.Int64N(3))}
	}
	return Op{Kind: Release, Budget: op.Budget, ID: old.ID}
}

// recent is one of the last few of a list.
func recent[E any](list []E, rng *rand.Rand) E { return list[max(0, len(list)-1-rng.IntN(12))] }
