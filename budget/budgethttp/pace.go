package budgethttp

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// How refusals are held back. A client that asks again at once, whatever it was told,
// would otherwise burn a core on refusals.
const (
	// freeRefusals are answered at once when they come together; each is forgotten
	// after forgetRefusal. What comes in excess is held.
	freeRefusals  = 20
	forgetRefusal = 200 * time.Millisecond
	// A refusal is held for a share of the time for which refusals have come, so that
	// many callers who are refused once each at the same time hardly notice.
	heldShare = 4
	leastHeld = 10 * time.Millisecond
	mostHeld  = time.Second
)

// pace tells how long to hold a refusal back. The zero value is ready, and safe for
// concurrent use.
type pace struct {
	mu        sync.Mutex // guards all below
	since     time.Time  // the first of the refusals that are not forgotten
	forgotten time.Time  // when all of them will be
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
	if end := now.Add(2 * freeRefusals * forgetRefusal); p.forgotten.After(end) { // however many came
		p.forgotten = end
	}
	return min(max(now.Sub(p.since)/heldShare, leastHeld), mostHeld)
}

// holdBack delays what is said of a request that may not be sent, where many were
// refused before. It ends with the request's context, and leaves the caller half of
// the time to its deadline; when the call would fit it ends too.
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
