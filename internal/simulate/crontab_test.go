package simulate

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/jobs"
)

// cronEntry is a job as a crontab has it, without a daemon: a script of its own
// with a counter of its own, which a new UTC day sets back to nothing. It asks the
// counter before each request. A region that meets an error is given up, and what
// was fetched of it is thrown away, since the script writes its file at the end.
// The next tick is skipped while the script still runs.
type cronEntry struct {
	t       *testing.T
	job     *jobs.Job
	units   int64 // of a request
	network *network

	mu   sync.Mutex // guards all below
	day  int
	used int64
}

// crontab lives the month without daemons.
func crontab(t *testing.T, m month) *tally {
	t.Helper()
	c := begin(m)
	n := newNetwork(t, m, c)
	_, list := load(t, writeConfig(t, t.TempDir(), m.setting))
	var entries sync.WaitGroup
	for _, j := range list {
		e := &cronEntry{t: t, job: j, network: n, units: 1}
		if j.Fetch.Operation == "search.list" {
			e.units = 100
		}
		entries.Go(func() { e.run(m.end()) })
	}
	entries.Wait()
	n.under.Wait()
	tally := newTally(m)
	tally.count(n)
	return tally
}

// run runs the script at each tick.
func (e *cronEntry) run(end time.Time) {
	for {
		tick := e.job.Next(e.network.clock.now())
		if !tick.Before(end) {
			return
		}
		e.network.clock.until(tick)
		slots := make(chan struct{}, max(1, e.job.Parallel))
		var script sync.WaitGroup
		for _, region := range e.job.Regions {
			slots <- struct{}{}
			script.Go(func() {
				e.fetch(region)
				<-slots
			})
		}
		script.Wait()
	}
}

// fetch is one region's listing, from its first page.
func (e *cronEntry) fetch(region string) {
	var file bytes.Buffer
	token := ""
	for pages := 1; ; pages++ {
		body, ok := e.get(region, token)
		if !ok {
			return
		}
		var line struct {
			NextPageToken string
		}
		if json.Unmarshal(body, &line) != nil || json.Compact(&file, body) != nil {
			return
		}
		file.WriteByte('\n')
		token = line.NextPageToken
		if token == "" || e.job.Fetch.NextFrom == "" || pages == e.job.Fetch.MaxPages {
			break
		}
	}
	pages, err := pagesOf(file.Bytes())
	check.NoError(e.t, err)
	e.network.keep(pages, e.network.clock.now())
}

// attempts is how often a page is asked for that fails.
const attempts = 3

func (e *cronEntry) get(region, token string) (body []byte, ok bool) {
	for range attempts {
		if !e.take() {
			return nil, false
		}
		address := strings.ReplaceAll(e.job.Fetch.URL, "{region}", region) + "&key=key"
		if token != "" {
			address += "&pageToken=" + token
		}
		request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, address, nil)
		if err != nil {
			return nil, false
		}
		response, err := e.network.RoundTrip(request)
		if err != nil {
			continue
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		switch {
		case err == nil && response.StatusCode == http.StatusOK:
			return body, true
		case response.StatusCode == http.StatusForbidden:
			return nil, false
		}
	}
	return nil, false
}

// take counts a request, if the counter has room for it.
func (e *cronEntry) take() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if today := e.network.clock.now().UTC().YearDay(); today != e.day {
		e.day, e.used = today, 0
	}
	if e.used+e.units > quota {
		return false
	}
	e.used += e.units
	return true
}
