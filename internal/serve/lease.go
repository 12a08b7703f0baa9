package serve

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// An operation with lease_units is charged that many units at a time, and requests that ask
// for nothing else take from these. The store is not asked for each.
const (
	// leaseSpan is how long a lease's charge lasts. It bounds how late its units return.
	leaseSpan = 10 * time.Second
	// leaseIdle is how long after its last request a lease is closed.
	leaseIdle = time.Minute
	// leaseRetry is how long after a failure no other lease is tried.
	leaseRetry = time.Second
	// maxLeases is how many leases a Server has at most. Further operations are charged
	// request by request.
	maxLeases = 1024
)

// leases are a Server's leases, by budget and operation.
type leases struct {
	open sync.Map // of *lease by leaseKey

	mu      sync.Mutex // guards all below, and additions to open
	n       int
	ended   bool
	closing sync.WaitGroup
	swept   time.Time
}

type leaseKey struct{ budget, operation string }

// lease is one of them, or an attempt to open it.
type lease struct {
	taken  atomic.Pointer[budget.Lease] // nil: it is being opened, or that failed
	used   atomic.Int64                 // when it was last asked for, Unix seconds
	failed atomic.Int64                 // when opening it failed, Unix ns; 0: it did not
}

// leasable is how many units a request takes from a lease; false if it asks for something
// that only a charge of its own has.
func (q *request) leasable(spec *budget.Spec) (units int64, ok bool) {
	const budgetOperationAndUnits = 1<<0 | 1<<1 | 1<<2 // as chargeMembers has them
	cost := spec.Costs[q.asked.Call.Operation]
	if cost.LeaseUnits == 0 || q.given&^budgetOperationAndUnits != 0 {
		return 0, false
	}
	units = cost.Units
	if q.asked.Call.Units != nil {
		units = q.units
	}
	return units, units >= 0 && units <= cost.LeaseUnits
}

// take takes from a lease. ok is false if there is none to take from: charge the request.
// A receipt has no id.
func (s *Server) take(ctx context.Context, b *opened, operation string, units int64) (receipt budget.Receipt, ok bool, err error) {
	l := s.leases.of(s, b, operation)
	if l == nil {
		return receipt, false, nil
	}
	if err = l.Take(ctx, units); errors.Is(err, budget.ErrClosed) {
		return receipt, false, nil
	}
	if err == nil {
		receipt = l.Receipt()
		receipt.ID, receipt.Units = "", units
		s.leased(b.spec.Name, operation, units)
	}
	return receipt, true, err
}

// of returns the lease of an operation; nil if there is none. The request that first asks
// for it opens it.
func (ls *leases) of(s *Server, b *opened, operation string) *budget.Lease {
	key, now := leaseKey{b.spec.Name, operation}, time.Now()
	found, known := ls.open.Load(key)
	if !known {
		if found = ls.add(s, key, now); found == nil {
			return nil
		}
	}
	l := found.(*lease)
	if seconds := now.Unix(); l.used.Load() != seconds {
		l.used.Store(seconds)
	}
	if taken := l.taken.Load(); taken != nil {
		return taken
	}
	if failed := l.failed.Load(); known && (failed == 0 || now.UnixNano()-failed < int64(leaseRetry) || !l.failed.CompareAndSwap(failed, 0)) {
		return nil // another request opens it, or it is too soon
	}
	return ls.start(s, b, operation, l)
}

// add makes room for a lease; nil if there is none, or the leases have ended. The request
// that added it opens it.
func (ls *leases) add(s *Server, key leaseKey, now time.Time) any {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.ended {
		return nil
	}
	if now.Sub(ls.swept) >= leaseIdle {
		ls.swept = now
		ls.sweep(s, now)
	}
	if ls.n >= maxLeases {
		return nil
	}
	l := &lease{}
	l.used.Store(now.Unix())
	if _, known := ls.open.LoadOrStore(key, l); known {
		return nil // another request has just added it
	}
	ls.n++
	return l
}

// start opens a lease. It does not end with the request that opens it.
func (ls *leases) start(s *Server, b *opened, operation string, l *lease) *budget.Lease {
	ls.mu.Lock()
	if ls.ended {
		ls.mu.Unlock()
		return nil
	}
	ls.closing.Add(1)
	ls.mu.Unlock()
	defer ls.closing.Done()
	ctx, cancel := context.WithTimeout(context.Background(), 2*b.spec.Timeout)
	defer cancel()
	call := budget.Call{Operation: operation}
	taken, err := b.Lease(ctx, call, b.spec.Costs[operation].LeaseUnits, leaseSpan)
	if err != nil { // the request is charged, and gets the answer for its own units
		l.failed.Store(time.Now().UnixNano())
		return nil
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.ended {
		ls.close(s, leaseKey{b.spec.Name, operation}, taken)
		return nil
	}
	l.taken.Store(taken)
	return taken
}

// sweep closes the leases that no request has asked for lately. ls.mu is held.
func (ls *leases) sweep(s *Server, now time.Time) {
	ls.open.Range(func(key, value any) bool {
		l := value.(*lease)
		taken := l.taken.Load()
		idle := now.Unix()-l.used.Load() > int64(leaseIdle/time.Second)
		if idle && (taken != nil || l.failed.Load() != 0) {
			ls.open.Delete(key)
			ls.n--
			if taken != nil {
				ls.close(s, key.(leaseKey), taken)
			}
		}
		return true
	})
}

// close closes a lease in the background. ls.mu is held.
func (ls *leases) close(s *Server, key leaseKey, taken *budget.Lease) {
	ls.closing.Go(func() {
		if err := taken.Close(context.Background()); err != nil {
			s.log.Warn("a lease was not settled", "budget", key.budget, "operation", key.operation, "error", err)
		}
	})
}

// EndLeases begins to close the leases. From then on all requests are charged one by one.
func (s *Server) EndLeases() {
	ls := &s.leases
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.ended {
		return
	}
	ls.ended = true
	ls.open.Range(func(key, value any) bool {
		if taken := value.(*lease).taken.Load(); taken != nil {
			ls.close(s, key.(leaseKey), taken)
		}
		return true
	})
}

// AwaitLeases waits, after EndLeases, until all leases are settled or ctx ends.
func (s *Server) AwaitLeases(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.leases.closing.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}
