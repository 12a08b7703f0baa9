package plan_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/jobs/sandbox"
)

// The order of what happens at one instant is fixed: no two jobs do anything at the same one, unless they wait for the
// same units.
const (
	// jobStep is how much longer the document of each job takes to read than that of the job before. Latencies and
	// offsets differ by other parts of a millisecond.
	jobStep = 11*time.Millisecond + 13*time.Microsecond
	// latency is that of each request: no sum of some is an offset of the next region.
	latency = 97 * time.Millisecond
)

// ordered is the store as the daemon sees it.
type ordered struct {
	*memstore.Store
	jobs, regions map[string]int // places, from 0

	mu    sync.Mutex // guards what follows
	moves []Move
	takes map[string]int64 // what each id took
}

// Move is a charge, a hold, or the end of one.
type Move struct {
	Budget string
	At     time.Time
	Most   int64 // units or calls, whichever are more
}

// moved notes a move of an id now.
func (o *ordered) moved(budgetName, id string, most int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	most = max(most, o.takes[id])
	o.takes[id] = most
	o.moves = append(o.moves, Move{budgetName, time.Now(), most})
}

// Finish implements driver.Store.
func (o *ordered) Finish(ctx context.Context, f driver.Finishes) ([]driver.Finished, error) {
	for _, one := range f.Items {
		o.moved(f.Budget, one.ID, one.Units)
	}
	return o.Store.Finish(ctx, f)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// yield has what is about to happen at the same instant happen first: so a look comes after the
// charges of runs that have begun.
func yield() {
	for range 100 {
		runtime.Gosched()
	}
}

// Decide implements driver.Store. Of several that wait for the same units, those of an earlier job ask first, and of one
// job those of an earlier region, and a look last: each gets an instant some µs later than the one
// before.
func (o *ordered) Decide(ctx context.Context, batch driver.Batch) (driver.Decisions, error) {
	if slices.ContainsFunc(batch.Items, func(i driver.Item) bool { return i.DryRun }) {
		yield()
	}
	decided, err := o.Store.Decide(ctx, batch)
	for i := range decided.Items {
		one, labels := &decided.Items[i], batch.Items[i].Labels
		place := len(allRegions)
		if !batch.Items[i].DryRun {
			place = o.regions[labels.Region]
		}
		if one.Result == driver.Refused && one.RetryAt > 0 && one.RetryAt < limit.Never {
			one.RetryAt += int64(10*o.jobs[labels.Job] + 1 + place)
		}
		if item := batch.Items[i]; one.Result == driver.Granted && !item.DryRun {
			calls := int64(1)
			for _, need := range item.Needs {
				calls += need.Calls
			}
			o.moved(batch.Budget, item.ID, max(item.Units, calls))
		}
	}
	return decided, err
}

// Look implements driver.Store.
func (o *ordered) Look(ctx context.Context, look driver.Look) (driver.View, error) {
	yield()
	return o.Store.Look(ctx, look)
}

// Job implements driver.JobStore.
func (o *ordered) Job(ctx context.Context, name string) (driver.JobDocument, error) {
	if place, known := o.jobs[name]; known {
		pause(ctx, time.Duration(place+1)*jobStep)
	}
	return o.Store.Job(ctx, name)
}

// network is the way to the sandbox, which answers as many pages of a run as it truly has.
type network struct {
	sandbox *sandbox.Server
	pages   func(job, region, tick string) int

	mu    sync.Mutex // guards asked
	asked map[string]int
}

var nextPage = regexp.MustCompile(`\s*"nextPageToken": "[^"]*",`)

// RoundTrip implements http.RoundTripper.
func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	pause(r.Context(), latency)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	n.sandbox.ServeHTTP(w, r)
	query := r.URL.Query()
	job, region, tick := query.Get("job"), query.Get("regionCode"), query.Get("tick")
	run := job + " " + region + " " + tick
	n.mu.Lock()
	n.asked[run]++
	page := n.asked[run]
	n.mu.Unlock()
	response := w.Result()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the sandbox answers %s: %s", response.Status, w.Body)
	}
	if page >= n.pages(job, region, tick) {
		body := nextPage.ReplaceAll(w.Body.Bytes(), nil)
		response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	return response, nil
}
