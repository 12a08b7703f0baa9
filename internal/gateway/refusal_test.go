package gateway

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

const spentConfig = `
[upstream.day]
hosts = ["api.example.com"]
unknown_operation = 1
final = { status = 402, body = '{"error":{"code":{status},"message":"{message}"}}' }
[upstream.day.limit.day]
quota = 2
window = "24h"
[upstream.day.credential.main]
[upstream.slack]
hosts = ["api.two.example.com"]
unknown_operation = 1
final = { status = 200, body = '{"ok":false,"error":"ratelimited","messages":["{message}"]}' }
[upstream.slack.limit.half]
quota = 1
window = "30s"
[upstream.slack.credential.main]
[upstream.plain]
hosts = ["pinned.example.com"]
[upstream.plain.costs]
big = { units = 8, match = "pinned.example.com/big" }
small = { units = 1, match = "pinned.example.com/small" }
[upstream.plain.limit.day]
quota = 10
window = "24h"
[upstream.plain.credential.main]
`

func noWait(o *Options) { o.Wait = new(time.Duration) }

// A refusal for good has the upstream's own form, ends the run, and costs nothing.
func TestRefusedForGood(t *testing.T) {
	w := newWorld(t, spentConfig, hello, noWait)
	for _, h2 := range []bool{false, true} {
		client := w.client(h2)
		for range 2 {
			get(t, client, "https://api.example.com/") //nolint:bodyclose // get closes it
		}
		resp, body := get(t, client, "https://api.example.com/") //nolint:bodyclose // as above
		check.Equal(t, resp.StatusCode, 402, "status")
		check.Equal(t, resp.Header.Get("X-Quotactl")+resp.Header.Get("X-Should-Retry"), "refusedfalse", "headers")
		check.Equal(t, resp.Header.Get("Retry-After"), "", "Retry-After")
		check.Equal(t, strings.HasPrefix(body, `{"error":{"code":402,"message":"quotactl: day/main is spent until `), true, body)
		check.Equal(t, json.Valid([]byte(body)), true, body)
	}
	<-w.g.Exhausted()
	check.Equal(t, w.charged("day/main"), 2, "units")
	check.Equal(t, len(w.Requests()), 2, "requests")
	check.Equal(t, w.g.Tally().Budgets["day/main"].Final, 4, "refusals") // the second client had no units left at all
}

// What fits within a minute is a 429 with when to retry, in the upstream's own form, also where its
// refusals are 200s; it does not end the run.
func TestRefusedForNow(t *testing.T) {
	w := newWorld(t, spentConfig, hello, noWait)
	client := w.client(true)
	get(t, client, "https://api.two.example.com/")               //nolint:bodyclose // get closes it
	resp, body := get(t, client, "https://api.two.example.com/") //nolint:bodyclose // as above
	check.Equal(t, resp.StatusCode, 429, "status")
	check.Equal(t, resp.Header.Get("Retry-After") != "" && resp.Header.Get("Retry-After-Ms") != "", true, "Retry-After")
	check.Equal(t, strings.HasPrefix(resp.Header.Get("Ratelimit"), `"half";r=0;t=`), true, resp.Header.Get("Ratelimit"))
	check.Equal(t, strings.HasPrefix(body, `{"ok":false,"error":"ratelimited","messages":["quotactl: slack/main is spent until `), true, body)
	select {
	case <-w.g.Exhausted():
		t.Error("the run is exhausted")
	default:
	}
}

// A call that can never fit is refused for good, and names why.
func TestNeverFits(t *testing.T) {
	w := newWorld(t, spentConfig, hello, func(o *Options) { o.Call.Floor = 5 })
	resp, body := get(t, w.client(false), "https://pinned.example.com/big") //nolint:bodyclose // get closes it
	check.Equal(t, resp.StatusCode, 403, "status")
	check.Equal(t, strings.Contains(body, "can never fit"), true, body)
	<-w.g.Exhausted()
	check.Equal(t, w.g.Tally().Budgets["plain/main"].Final, 1, "refusals")
	var p struct {
		Message, Detail string
		Error           struct {
			Message string
			Errors  []struct{ Message string }
		}
	}
	must.Do(t, json.Unmarshal([]byte(body), &p))
	check.Equal(t, p.Message == p.Detail && p.Message == p.Error.Message && p.Error.Errors[0].Message == p.Message, true, body)
}

// What ends with a loss, a lock or a pass is for good, however soon it may: nobody knows when.
func TestWhatMayEndSoonIsForGood(t *testing.T) {
	w := newWorld(t, spentConfig, hello)
	get(t, w.client(false), "https://api.example.com/") //nolint:bodyclose // get closes it
	c := &call{budget: "day/main"}
	c.upstream = &w.cfg.Upstreams[0]
	for name, refused := range map[string]budget.RefusedError{
		"a loss": {Err: budget.ErrRecovering}, "a lock": {Err: budget.ErrLocked},
		"a hold": {Err: budget.ErrExhausted, Held: 1}, "a share": {Err: budget.ErrExhausted, Kept: []budget.Kept{{}}},
	} {
		refused.Limit, refused.RetryAfter, refused.RetryAt = "day", 5*time.Hour, time.Now().Add(5*time.Hour)
		r := newHandler(w.g).exhausted(c, &refused)
		check.Equal(t, r.ends, true, name)
	}
}

// A refusal of an unknown operation names the line to write, and costs nothing.
func TestNoOperation(t *testing.T) {
	w := newWorld(t, spentConfig, hello)
	resp, body := get(t, w.client(true), "https://pinned.example.com/other/secret-part") //nolint:bodyclose // get closes it
	check.Equal(t, resp.StatusCode, 403, "status")
	check.Equal(t, strings.Contains(body, "GET pinned.example.com/other/… is no operation of upstream plain"), true, body)
	check.Equal(t, len(w.Requests()), 0, "requests")
	check.Equal(t, len(w.g.Tally().Misconfigured), 1, "said")
}

// gRPC's clients get their own form.
func TestRefusedGRPC(t *testing.T) {
	w := newWorld(t, spentConfig, hello, noWait)
	client := w.client(true)
	for range 3 {
		resp := must.Get(client.Post("https://api.example.com/x.Y/Z", "application/grpc+proto", strings.NewReader("abc")))(t) //nolint:bodyclose // it is closed below
		_ = resp.Body.Close()
		if len(w.Requests()) == 2 && resp.Header.Get("X-Quotactl") != "" {
			check.Equal(t, resp.StatusCode, 200, "status")
			check.Equal(t, resp.Header.Get("Grpc-Status"), "8", "grpc-status")
			check.Equal(t, strings.HasPrefix(resp.Header.Get("Grpc-Message"), "quotactl:%20day%2Fmain%20is%20spent"), true, resp.Header.Get("Grpc-Message"))
			return
		}
	}
	t.Error("nothing was refused")
}

// A program that gives up while its call waits has cost nothing, and nothing was sent.
func TestGivenUpWaits(t *testing.T) {
	w := newWorld(t, spentConfig, hello, func(o *Options) { o.Wait = func() *time.Duration { m := time.Minute; return &m }() })
	for _, h2 := range []bool{false, true} {
		client := w.client(h2)
		if !h2 {
			get(t, client, "https://api.two.example.com/") //nolint:bodyclose // get closes it
		}
		for _, body := range []io.Reader{nil, strings.NewReader("short")} {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			req := must.Get(http.NewRequestWithContext(ctx, http.MethodPost, "https://api.two.example.com/", body))(t)
			resp, err := client.Do(req)
			if err == nil {
				_ = resp.Body.Close()
				t.Error("it was answered", resp.Status)
			}
			cancel()
		}
	}
	b := must.Get(w.open("slack/main"))(t)
	spent := must.Get(b.Spent(t.Context(), budget.ByOperation, 0))(t)
	check.Equal(t, spent.Total.Calls, 1, "calls")
	must.Do(t, b.Close())
	w.g.stop()
	check.Equal(t, w.g.Tally().Budgets["slack/main"].GaveUp, 4, "that were given up")
	check.Equal(t, len(w.Requests()), 1, "requests")
}

// So has a program that gives up while its call waits for a connection.
func TestGivenUpDials(t *testing.T) {
	w := newWorld(t, worldConfig, hello)
	dialling := make(chan struct{}, 1)
	w.g.wire.usual.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		dialling <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-dialling
		cancel()
	}()
	_, err := w.client(true).Do(must.Get(http.NewRequestWithContext(ctx, http.MethodGet, "https://api.example.com/", nil))(t)) //nolint:bodyclose // there is none
	check.Is(t, err, context.Canceled)
	check.Equal(t, w.charged("any/main"), 0, "units")
	w.g.stop()
	tally := w.g.Tally()
	check.Equal(t, tally.Budgets["any/main"].GaveUp, 1, "given up")
	check.Equal(t, tally.Well(), false, "well")
}

// A call waits in the proxy for what comes back soon.
func TestWaits(t *testing.T) {
	w := newWorld(t, strings.ReplaceAll(spentConfig, `"30s"`, `"500ms"`), hello)
	client := w.client(true)
	for range 3 {
		resp, _ := get(t, client, "https://api.two.example.com/") //nolint:bodyclose // get closes it
		check.Equal(t, resp.StatusCode, 200, "status")
	}
	check.Equal(t, len(w.Requests()), 3, "requests")
}

// Refused uploads, small and large, on both versions of HTTP: no program loses the answer.
func TestRefusedUploads(t *testing.T) {
	w := newWorld(t, spentConfig, hello, noWait)
	for range 2 {
		get(t, w.client(true), "https://api.example.com/") //nolint:bodyclose // get closes it
	}
	for _, h2 := range []bool{false, true} {
		client := w.client(h2)
		failed := make(chan error, 60)
		for range 20 {
			go func() {
				for _, size := range []int{60, 100 << 10, 250 << 10} {
					resp, err := client.Post("https://api.example.com/", "text/plain", strings.NewReader(strings.Repeat("x", size)))
					if err == nil {
						_, err = io.Copy(io.Discard, resp.Body)
						_ = resp.Body.Close()
					}
					failed <- err
				}
			}()
		}
		for range 60 {
			check.NoError(t, <-failed)
		}
	}
}

// The later requests of an upload carry no key: they are of the first one's budget, and free.
func TestUploadsAreOfTheirFirstRequest(t *testing.T) {
	w := newWorld(t, `
[upstream.up]
[upstream.up.costs]
insert = { units = 100, match = "www.googleapis.com/upload/", once = { query = "upload_id" } }
[upstream.up.limit.day]
quota = 1000
window = "24h"
[upstream.up.credential.a]
secret_env = "A"
[upstream.up.credential.b]
secret_env = "B"
`, func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Location", "https://www.googleapis.com/upload/x?upload_id=7"+req.URL.Query().Get("key"))
	}, func(o *Options) { o.Secret = func(c config.Credential) string { return "secret-" + c.SecretEnv } })
	client := w.client(true)
	for _, key := range []string{"secret-A", "secret-B"} {
		resp, _ := get(t, client, "https://www.googleapis.com/upload/x?key="+key) //nolint:bodyclose // get closes it
		check.Equal(t, resp.StatusCode, 200, "status")
		for range 3 {
			part, _ := get(t, client, resp.Header.Get("Location")) //nolint:bodyclose // as above
			check.Equal(t, part.StatusCode, 200, "status")
		}
	}
	check.Equal(t, w.charged("up/a"), 100, "units of a")
	check.Equal(t, w.charged("up/b"), 100, "units of b")
	unknown, _ := get(t, client, "https://www.googleapis.com/upload/x?upload_id=8") //nolint:bodyclose // as above
	check.Equal(t, unknown.StatusCode, 403, "an upload that nobody began")
}
