package budgethttp

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// Refusals are delayed, because a client that retries at once would otherwise burn a
// core on them.
const (
	// freeRefusals in a row are returned at once; each is forgotten after
	// forgetRefusal. Further ones are delayed.
	freeRefusals  = 20
	forgetRefusal = 200 * time.Millisecond
	// The delay is a share of the time over which refusals have come, so that many
	// callers who are each refused once at the same time hardly notice.
	heldShare = 4
	leastHeld = 10 * time.Millisecond
	mostHeld  = time.Second
)

// pace computes how long to delay a refusal. The zero value is ready, and safe for
// concurrent use.
type pace struct {
	mu        sync.Mutex // guards all below
	since     time.Time  // the first refusal that is not forgotten
	forgotten time.Time  // when all are forgotten
}

// refused notes a refusal.
func (p *pace) refused(now time.Time) (hold time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.forgotten.After(now) {
		p.since, p.forgotten = now, now
	}
	p.forgotten = p.forgotten.Add(forgetRefusal)
	if p.forgotten.Sub(now) <= freeRefusals*forgetRefusal {
		return 0
	}
	if end := now.Add(2 * freeRefusals * forgetRefusal); p.forgotten.After(end) { // however many there were
		p.forgotten = end
	}
	return min(max(now.Sub(p.since)/heldShare, leastHeld), mostHeld)
}

// holdBack delays a refusal after many earlier ones. The delay ends when the request's
// context ends or when the call would fit, and leaves the caller half of the time to
// its deadline.
func (t *Transport) holdBack(req *http.Request, err error) {
	began := time.Now()
	hold := t.pace.refused(began)
	var refused *budget.RefusedError
	if errors.As(err, &refused) && refused.RetryAfter > 0 {
		hold = min(hold, refused.RetryAfter)
		defer func() { refused.RetryAfter = max(time.Microsecond, refused.RetryAfter-time.Since(began)) }()
	}
	ctx := req.Context()
	if deadline, bounded := ctx.Deadline(); bounded {
		hold = min(hold, time.Until(deadline)/2)
	}
	if hold <= 0 {
		return
	}
	timer := time.NewTimer(hold)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
