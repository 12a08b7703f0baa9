package gateway

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/screen"
)

const callsConfig = `
[upstream.small]
hosts = ["api.example.com"]
unknown_operation = 5
[upstream.small.limit.day]
quota = 12
window = "24h"
[upstream.small.share.mine]
jobs = ["mine"]
units = 6
[upstream.small.refusal.spent]
status = 403
means = "exhausted"
[upstream.small.credential.main]
[upstream.brief]
hosts = ["api.two.example.com"]
unknown_operation = 1
[upstream.brief.limit.half]
quota = 1
window = "30s"
[upstream.brief.credential.main]
[upstream.one]
hosts = ["other.example.com"]
unknown_operation = 1
[upstream.one.limit.open]
quota = 1
concurrent = true
per = "operation"
[upstream.one.credential.main]
[upstream.closed]
hosts = ["pinned.example.com"]
tunnel = true
unknown_operation = 1
[upstream.closed.limit.day]
quota = 10
window = "24h"
[upstream.closed.credential.main]
`

// firstLine is what the gateway says of the calls so far, for a job.
func (w *world) firstLine(job string, well bool) string {
	w.t.Helper()
	left := map[string]budget.Status{}
	for name, one := range w.g.meters.byName {
		must.Do(w.t, one.budget.Flush(w.t.Context()))
		left[name] = must.Get(one.budget.Status(w.t.Context()))(w.t)
	}
	tally := w.g.Tally()
	check.Equal(w.t, tally.Well(), well, "well")
	return tally.Lines("run", job, screen.Pipe(), left)[0]
}

// passes sends something through a tunnel, and waits for its end.
func (w *world) passes(address string) {
	conn := w.tunnel(address)
	_, err := fmt.Fprint(conn, "no TLS\n")
	must.Do(w.t, err)
	_, err = io.Copy(io.Discard, conn)
	must.Do(w.t, err)
}

// The last line has what became of all calls, also of those whose program keeps it to itself.
func TestWhatBecameOfTheCalls(t *testing.T) {
	const api, brief = "https://api.example.com/", "https://api.two.example.com/"
	for name, c := range map[string]struct {
		job   string
		calls func(w *world, client *http.Client)
		want  string
		well  bool
	}{
		"all well": {"", func(w *world, client *http.Client) { get(w.t, client, api) }, //nolint:bodyclose // get closes it
			"run: 1 call, 5 units of small/main, 1 left in limit day until ", true},
		"for the job's share": {"mine", func(w *world, client *http.Client) { get(w.t, client, api) }, //nolint:bodyclose // as above
			"run: 1 call, 5 units of small/main, 7 left in limit day until ", true},
		"for good": {"", func(w *world, client *http.Client) {
			for range 3 {
				get(w.t, client, api) //nolint:bodyclose // as above
			}
		}, "run: 1 call, 5 units of small/main, 2 calls refused by limit day (the first is for 5 units), 1 left in limit day until ", false},
		"for now": {"", func(w *world, client *http.Client) {
			for range 4 {
				get(w.t, client, brief) //nolint:bodyclose // as above
			}
		}, "run: 1 call, 1 unit of brief/main, 3 calls refused for less than a minute (429), 0 left in limit half until ", false},
		"for now, all": {"", func(w *world, client *http.Client) {
			b := must.Get(w.open("brief/main"))(w.t)
			must.Get(b.Charge(w.t.Context(), budget.Call{Operation: "x"}))(w.t)
			get(w.t, client, brief) //nolint:bodyclose // as above
			must.Do(w.t, b.Close())
		}, "run: 0 calls, 0 units of brief/main, 1 call refused for less than a minute (429), 0 left in limit half until ", false},
		"refused by the API": {"", func(w *world, client *http.Client) { get(w.t, client, api+"spent") }, //nolint:bodyclose // as above
			"run: 1 call, 5 units of small/main, 1 call refused by the API, locked until ", false},
		"a host that was to pass": {"", func(w *world, _ *http.Client) { w.passes("pinned.example.com:443") },
			"run: no call was charged; 1 connection to pinned.example.com passed unmetered", true},
		"another port": {"", func(w *world, _ *http.Client) { w.passes("api.example.com:9443") },
			"run: no call to an upstream of the configuration was seen; 1 connection to api.example.com:9443 passed unmetered", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, callsConfig, func(w http.ResponseWriter, req *http.Request) {
				if req.URL.Path == "/spent" {
					w.WriteHeader(http.StatusForbidden)
				}
			}, noWait, func(o *Options) { o.Call.Labels.Job = c.job })
			c.calls(w, w.client(true))
			line := w.firstLine(c.job, c.well)
			if !strings.HasPrefix(line, c.want) {
				t.Errorf("got  %s\nwant %s", line, c.want)
			}
		})
	}
}

// A place in a limit on open calls is free again as soon as a call ends: a refusal by it is for now,
// whatever the leases of those calls are. One that is given up frees its place.
func TestOpenCallsRefuseForNow(t *testing.T) {
	begun := make(chan struct{})
	w := newWorld(t, callsConfig, func(_ http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/slow" {
			close(begun)
			<-req.Context().Done()
		}
	}, noWait)
	client := w.client(true)
	ctx, cancel := context.WithCancel(t.Context())
	slow := make(chan error)
	go func() {
		resp, err := client.Do(must.Get(http.NewRequestWithContext(ctx, http.MethodGet, "https://other.example.com/slow", nil))(t))
		if err == nil {
			_ = resp.Body.Close()
		}
		slow <- err
	}()
	<-begun
	resp, body := get(t, client, "https://other.example.com/") //nolint:bodyclose // get closes it
	check.Equal(t, resp.StatusCode, 429, body)
	check.Equal(t, resp.Header.Get("Retry-After"), "1", "Retry-After")
	check.Contains(t, body, `"quotactl: one/main has nothing left in limit open:unmatched while calls are open; it may have when one ends"`)
	check.Equal(t, strings.Contains(body, "retry_at"), false, body)
	cancel()
	check.Is(t, <-slow, context.Canceled)
	for resp.StatusCode == http.StatusTooManyRequests { // until the place is free, or the test's time is over
		resp, _ = get(t, client, "https://other.example.com/") //nolint:bodyclose // as above
	}
	check.Equal(t, resp.StatusCode, 200, "status")
	select {
	case <-w.g.Exhausted():
		t.Error("the run is exhausted")
	default:
	}
	b := must.Get(w.open("one/main"))(t)
	must.Get(b.Lock(t.Context(), budget.LockOrder{Limit: "open:unmatched", Until: budget.Until{After: time.Hour}, ByHand: true}))(t)
	must.Do(t, b.Close())
	resp, body = get(t, client, "https://other.example.com/") //nolint:bodyclose // as above
	check.Equal(t, resp.StatusCode, 403, body)
}

// A window that open calls fill has room its length after they end, whatever their leases are.
func TestOpenCallsInAWindowRefuseForNow(t *testing.T) {
	begun := make(chan struct{})
	w := newWorld(t, callsConfig, func(_ http.ResponseWriter, req *http.Request) {
		close(begun)
		<-req.Context().Done()
	}, noWait)
	client := w.client(true)
	ctx, cancel := context.WithCancel(t.Context())
	slow := make(chan error)
	go func() {
		_, err := client.Do(must.Get(http.NewRequestWithContext(ctx, http.MethodGet, "https://api.two.example.com/", nil))(t)) //nolint:bodyclose // there is none
		slow <- err
	}()
	<-begun
	resp, body := get(t, client, "https://api.two.example.com/") //nolint:bodyclose // get closes it
	check.Equal(t, resp.StatusCode, 429, body)
	check.Equal(t, resp.Header.Get("Retry-After"), "30", "Retry-After")
	check.Contains(t, body, "brief/main has nothing left in limit half while calls are open")
	cancel()
	check.Is(t, <-slow, context.Canceled)
}

// Of more hosts than are counted apart, nothing is said rather than something false.
func TestConnectionsToManyHosts(t *testing.T) {
	all := newTally()
	for i := range 2 * mostNamed {
		all.connection(fmt.Sprint("host", i), false)
		all.connection(fmt.Sprint("host", i), true)
	}
	all.connection("another", false)
	check.Equal(t, len(all.without), mostNamed, "hosts")
	g := &Gateway{tally: all}
	tally := g.Tally()
	check.Equal(t, len(tally.Broken), 0, "named")
}
