package budgethttp

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// How refusals are delayed. Otherwise a client that ignores the refusal and asks again at
// once would burn a core.
const (
	// freeRefusals is how many refusals in a burst are answered at once; each is
	// forgotten after forgetRefusal. Further ones are delayed.
	freeRefusals  = 20
	forgetRefusal = 200 * time.Millisecond
	// A refusal is delayed for a share of the time since refusals began, so that many
	// callers who are refused once each at the same time hardly notice.
	heldShare = 4
	leastHeld = 10 * time.Millisecond
	mostHeld  = time.Second
)

// pace determines how long to delay a refusal. The zero value is ready, and safe for
// concurrent use.
type pace struct {
	mu        sync.Mutex // guards all below
	since     time.Time  // the first of the refusals that are not forgotten
	forgotten time.Time  // when all of them will be forgotten
}

// refused notes a refusal and returns how long to delay it.
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

// holdBack delays a refusal if there were many before. The delay ends with the request's
// context, takes at most half of the time to the caller's deadline, and ends when the
// call would fit.
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
