package plan_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/jobs/sandbox"
)

// The order of what happens at one instant is fixed by small delays, so that the same day is lived alike each time.
const (
	jobStep    = 10 * time.Millisecond // each job's document takes so much longer to read than that of the job before
	lookTakes  = time.Millisecond      // a look charges nothing
	regionStep = time.Microsecond      // a charge of each region takes so much longer than one of the region before
	jobCharge  = 10 * time.Microsecond // and one of each job than one of the job before
	latency    = 100 * time.Millisecond
)

// ordered is the store as the daemon sees it.
type ordered struct {
	*memstore.Store
	jobs, regions map[string]int // places, from 0
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// Decide implements driver.Store.
func (o *ordered) Decide(ctx context.Context, batch driver.Batch) (driver.Decisions, error) {
	if len(batch.Items) > 0 {
		item := batch.Items[0]
		wait := time.Duration(o.jobs[item.Labels.Job])*jobCharge + time.Duration(1+o.regions[item.Labels.Region])*regionStep
		if item.DryRun {
			wait = lookTakes
		}
		pause(ctx, wait)
	}
	return o.Store.Decide(ctx, batch)
}

// Look implements driver.Store.
func (o *ordered) Look(ctx context.Context, look driver.Look) (driver.View, error) {
	pause(ctx, lookTakes)
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
