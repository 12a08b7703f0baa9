package serve_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/pipetest"
	"github.com/quotactl/quotactl/internal/serve"
)

func TestUnknownPath(t *testing.T) {
	w := newWorld(t, serve.Options{})
	for _, path := range []string{"/v1/", "/v1/charge/", "/v1/charged", "/v1/openapi.yaml", "/v2/charge"} {
		w.post(path, chargeGet).is(404, "reason", "no_path")
	}
	head := httptest.NewRecorder()
	w.ServeHTTP(head, w.request(http.MethodHead, "/v1/status", ""))
	check.Equal(t, head.Code, 200, "HEAD")
	w.do(w.request(http.MethodHead, "/v1/charge", "")).is(405)
	w.get("/v1/charge").has("Allow", "POST")
	w.post("/v1/status", "").has("Allow", "GET, HEAD")
}

// The server reads a body of exactly MaxBody, and refuses one byte more.
func TestBodySize(t *testing.T) {
	w := newWorld(t, serve.Options{})
	w.post("/v1/charge", chargeGet+strings.Repeat(" ", serve.MaxBody-len(chargeGet))).is(200)
	w.post("/v1/charge", chargeGet+strings.Repeat(" ", serve.MaxBody-len(chargeGet)+1)).is(413, "reason", "body_size")
	w.post("/v1/charge", chargeGet).is(200) // no buffer was spoilt
}

func TestHeaderCount(t *testing.T) {
	w := newWorld(t, serve.Options{})
	r := w.request(http.MethodPost, "/v1/charge", chargeGet)
	for i := range serve.MaxHeaderFields - 1 {
		r.Header.Set(fmt.Sprint("X-", i), "x")
	}
	w.do(r).is(200)
	r = w.request(http.MethodPost, "/v1/charge", chargeGet)
	for i := range serve.MaxHeaderFields {
		r.Header.Set(fmt.Sprint("X-", i), "x")
	}
	w.do(r).is(431)
}

// While the most requests are under way, others are busy. None is lost, and afterwards
// there is room again.
func TestUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, serve.Options{UnderWay: 3})
		held := make(chan struct{})
		w.store.decide = func(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
			<-held
			return w.store.Store.Decide(ctx, b)
		}
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { w.post("/v1/charge", chargeGet).is(200) })
		}
		synctest.Wait()
		busy := w.get("/v1/status")
		close(held)
		all.Wait()
		busy.is(503, "reason", "busy")
		busy.has("Retry-After", "1")
		w.get("/v1/status").is(200)
		w.post("/v1/charge", chargeGet).is(200)
		check.Equal(t, w.spent(budget.ByOperation)["get"], 4, "units are spent")
	})
}

// Of the budgets that a credential "*" admits, the cache keeps the most recently used ones
// and all in use, so that each name has only one.
func TestBudgetsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var opened []string
		w := newWorld(t, serve.Options{})
		held, hold := make(chan struct{}), atomic.Bool{}
		w.store.decide = func(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
			if hold.Load() && b.Budget == "shop/a" {
				<-held
			}
			return w.store.Store.Decide(ctx, b)
		}
		w.Server = serve.New(serve.Options{MaxOpen: 2, Open: func(name string) (*budget.Budget, error) {
			opened = append(opened, strings.TrimPrefix(name, "shop/"))
			return w.open(name), nil
		}})
		charge := func(name string) { w.post("/v1/charge", `{"budget":"shop/`+name+`","operation":"get"}`).is(200) }
		for _, name := range strings.Split("abacabd", "") {
			charge(name)
		}
		check.Equal(t, strings.Join(opened, ""), "abcbd", "opened: kept are the two used last")
		opened = nil
		hold.Store(true)
		var slow sync.WaitGroup
		slow.Go(func() { charge("a") })
		synctest.Wait()
		w.get("/v1/status?budget=shop/a").is(200)
		for _, name := range strings.Split("bcde", "") {
			charge(name)
		}
		w.get("/v1/status?budget=shop/a").is(200)
		close(held)
		slow.Wait()
		if got := strings.Join(opened, ""); strings.Count(got, "a") > 1 {
			t.Errorf("opened %s: a budget in use was opened again", got)
		}
	})
}

// serveInFakeTime serves in a bubble, until the test ends.
func serveInFakeTime(t *testing.T, server *http.Server) pipetest.Dial {
	t.Helper()
	l := pipetest.Listen()
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() {
		check.NoError(t, server.Close())
		serving.Wait()
	})
	return l.Dial
}

// A wait outlives the timeouts of the listener, and so does a decision that takes the whole
// timeout of the store.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, serve.Options{})
		w.spec.Limits = []limit.Limit{{Name: "l", Limit: 1, Counts: limit.CountUnits, Window: limit.RollingWindow(700 * time.Millisecond)}}
		transport := &http.Transport{DialContext: serveInFakeTime(t, &http.Server{Handler: w, ReadTimeout: 150 * time.Millisecond, WriteTimeout: 150 * time.Millisecond})}
		defer transport.CloseIdleConnections()
		client := &http.Client{Transport: transport}
		for _, want := range []int{200, 200} { // the second waits for the first one's units
			response, err := client.Post("http://127.0.0.1/v1/charge", "application/json", strings.NewReader(`{"budget":"shop/w","operation":"get","wait_seconds":20}`))
			must.Do(t, err)
			body, err := io.ReadAll(response.Body)
			_ = response.Body.Close()
			must.Do(t, err)
			check.Equal(t, response.StatusCode, want, string(body))
		}
	})
}

// The server stops waiting for a body when the listener's deadline passes.
func TestSlowBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial := serveInFakeTime(t, &http.Server{Handler: newWorld(t, serve.Options{}), ReadTimeout: 50 * time.Millisecond})
		conn := must.Get(dial(t.Context(), "", ""))(t)
		defer func() { _ = conn.Close() }()
		must.Get(io.WriteString(conn, "POST /v1/charge HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"))(t)
		got, err := io.ReadAll(conn)
		if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 408 ") || !strings.Contains(string(got), `"reason":"body_time"`) {
			t.Errorf("%s %v", got, err)
		}
	})
}

// The answers to many clients at once add up to what is charged; equal ids count once.
func TestTogether(t *testing.T) {
	w := newWorld(t, serve.Options{})
	w.spec.Limits = []limit.Limit{{Name: "l", Limit: 600, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)}}
	server := httptest.NewServer(w)
	defer server.Close()
	var granted, replayed, refused, units atomic.Int64
	var all sync.WaitGroup
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}}
	for c := range 32 {
		all.Go(func() {
			for i := range 40 {
				body := fmt.Sprintf(`{"budget":"shop/together","operation":"get","units":%d,"id":"%d"}`, 1+i%3, (c/2)*1000+i)
				response, err := client.Post(server.URL+"/v1/charge", "application/json", strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				text, err := io.ReadAll(response.Body)
				_ = response.Body.Close()
				switch {
				case err != nil:
					t.Error(err)
				case response.StatusCode == 429:
					refused.Add(1)
				case response.StatusCode != 200:
					t.Errorf("%d %s", response.StatusCode, text)
				case strings.Contains(string(text), `"replayed":true`):
					replayed.Add(1)
				default:
					granted.Add(1)
					units.Add(int64(1 + i%3))
				}
			}
		})
	}
	all.Wait()
	view := must.Get(w.store.Spent(t.Context(), driver.SpentQuery{Budget: "shop/together", Now: time.Now().UnixMicro(), By: budget.ByOperation}))(t)
	must.Equal(t, len(view.Rows), 1)
	if row := view.Rows[0]; row.Units != units.Load() || row.Calls != granted.Load() || row.Units > 600 || row.Units < 598 {
		t.Errorf("%d charges of %d units are in the ledger; %d of %d were answered", row.Calls, row.Units, granted.Load(), units.Load())
	}
	if granted.Load() == 0 || replayed.Load() == 0 || refused.Load() == 0 {
		t.Errorf("%d granted, %d replayed, %d refused", granted.Load(), replayed.Load(), refused.Load())
	}
}
