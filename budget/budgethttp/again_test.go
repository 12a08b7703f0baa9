package budgethttp_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/pipetest"
)

// dying answers the first request of each connection, and closes it when it has read
// another, which it counts as well.
func dying(t *testing.T) (address string, counted *atomic.Int64) {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	return "http://" + l.Addr().String(), die(t, l)
}

// die does so with the connections of a listener.
func die(t *testing.T, l net.Listener) (counted *atomic.Int64) {
	t.Helper()
	counted = &atomic.Int64{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			stop := context.AfterFunc(t.Context(), func() { _ = c.Close() })
			in := bufio.NewReader(c)
			for i := range 2 {
				req, err := http.ReadRequest(in)
				if err != nil {
					break
				}
				_, _ = io.Copy(io.Discard, req.Body)
				counted.Add(1)
				if i == 0 {
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				}
			}
			stop()
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return counted
}

// net/http sends a request again by itself when a kept connection has died under it.
// That is charged before it goes out, as any other.
func TestWhatTheBaseSendsAgainIsCharged(t *testing.T) {
	url, counted := dying(t)
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	b := open(t, budget.Spec{Costs: map[string]budget.Cost{"read": {Units: 5}}})
	o := &observer{}
	client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: base, Operation: "read", Observer: o})}
	for range 4 { // the second is sent twice, the third too, …
		read(t, client, url)
		want(t, b, 5*counted.Load(), counted.Load(), 0)
	}
	check.Equal(t, counted.Load(), 7, "the server counted")
	check.Equal(t, o.check(t), 35, "the observer saw … units")
}

// Where there are no units left for that, the request fails; what may have gone out
// nevertheless is recorded as a debt.
func TestWhatTheBaseSendsAgainIsRefused(t *testing.T) {
	url, counted := dying(t)
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	b := open(t, budget.Spec{Limits: []limit.Limit{hourly(10)}, Costs: map[string]budget.Cost{"read": {Units: 5}}})
	o := &observer{}
	client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: base, Operation: "read", Observer: o})}
	read(t, client, url)
	_, err := client.Get(url) //nolint:bodyclose // there is none
	var refused *budget.RefusedError
	if !errors.As(err, &refused) || !errors.Is(err, budget.ErrExhausted) {
		t.Error(err)
	}
	want(t, b, 15, 2, 0)
	if n := counted.Load(); n > 3 {
		t.Errorf("the server counted %d", n)
	}
	check.Equal(t, o.check(t), 15, "the observer saw … units")
}

// A base that first asks another host for a token sends nothing again.
func TestATokenIsNoSecondSending(t *testing.T) {
	server := newCounting(t)
	token := newCounting(t)
	plain := &http.Transport{}
	defer plain.CloseIdleConnections()
	base := roundTrip(func(req *http.Request) (*http.Response, error) {
		ask, err := http.NewRequestWithContext(req.Context(), http.MethodGet, token.URL, nil)
		if err != nil {
			return nil, err
		}
		resp, err := plain.RoundTrip(ask)
		if err != nil {
			return nil, err
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return plain.RoundTrip(req)
	})
	b := open(t, budget.Spec{Costs: map[string]budget.Cost{"read": {Units: 5}}})
	client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: base, Operation: "read"})}
	read(t, client, server.URL)
	read(t, client, server.URL)
	want(t, b, 10, 2, 0)
}

// A caller that has asked to wait waits then, too, where the request may be sent any number
// of times.
func TestWhatTheBaseSendsAgainWaits(t *testing.T) {
	for name, c := range map[string]struct {
		method, body string
		maxWait      time.Duration
		waits        bool
	}{
		"GET":               {http.MethodGet, "", 0, true},
		"GET with a body":   {http.MethodGet, "body", 0, true},
		"long enough":       {http.MethodGet, "", 2 * time.Minute, true},
		"not that long":     {http.MethodGet, "", 30 * time.Second, false},
		"POST, idempotent":  {http.MethodPost, "", 0, false},
		"PUT with its body": {http.MethodPut, "body", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := pipetest.Listen()
				counted := die(t, p)
				base := &http.Transport{DialContext: p.Dial}
				defer base.CloseIdleConnections()
				minute := limit.Limit{Name: "minute", Quota: 10, Limit: 10, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Minute)}
				b := open(t, budget.Spec{Limits: []limit.Limit{minute, hourly(1000)}, Costs: map[string]budget.Cost{"read": {Units: 5}}})
				o := &observer{}
				client := &http.Client{Transport: meter(t, b, budgethttp.Options{
					Base: base, Operation: "read", Observer: o, Refused: budgethttp.Wait, MaxWait: c.maxWait,
				})}
				ask := func() error {
					req, err := http.NewRequestWithContext(t.Context(), c.method, "http://upstream", nil)
					if err != nil {
						return err
					}
					if c.body != "" {
						if req, err = http.NewRequestWithContext(t.Context(), c.method, "http://upstream", strings.NewReader(c.body)); err != nil {
							return err
						}
					}
					req.Header.Set("Idempotency-Key", "key")
					resp, err := client.Do(req)
					if err != nil {
						return err
					}
					defer resp.Body.Close() //nolint:errcheck // it is of no interest
					text, err := io.ReadAll(resp.Body)
					check.Equal(t, string(text), "ok", text)
					return err
				}
				start := time.Now()
				must.Do(t, ask())
				err := ask() // on the connection that dies
				switch took := time.Since(start); {
				case c.waits:
					if err != nil || took < time.Minute || took > time.Minute+time.Second {
						t.Errorf("%v after %s", err, took)
					}
					want(t, b, 20, 3, 0) // one of them is what may have left, a debt
				default:
					if !errors.Is(err, budget.ErrExhausted) || took != 0 {
						t.Errorf("%v after %s", err, took)
					}
					want(t, b, 15, 2, 0)
				}
				if got, n := o.check(t), counted.Load(); got < 5*n {
					t.Errorf("%d units for %d that the server counted", got, n)
				}
			})
		})
	}
}

// A request of a session that the base sends again is charged no more than the session,
// whether it is the first or a later one.
func TestWhatTheBaseSendsAgainOfASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pipetest.Listen()
		counted := die(t, p)
		base := &http.Transport{DialContext: p.Dial}
		defer base.CloseIdleConnections()
		b := uploads(t, inMemory(), feedback.Key{Query: "upload_id"})
		client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: base})}
		read(t, client, "http://upstream/")
		for range 2 { // each first goes to a connection that dies
			req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPut, "http://upstream/upload?upload_id=secret", nil))(t)
			req.Header.Set("Idempotency-Key", "key")
			resp := do(t, client, req)
			readAll(t, resp, "ok")
			must.Do(t, resp.Body.Close())
		}
		want(t, b, 1+30, 2, 0)
		check.Equal(t, counted.Load(), 5, "the server counted")
	})
}

// A client that asked to wait waits only for units: a request that fails otherwise is not
// sent again.
func TestWhatFailsIsNotSentAgain(t *testing.T) {
	b := open(t, budget.Spec{Costs: map[string]budget.Cost{"read": {Units: 5}}})
	sent := 0
	base := roundTrip(func(req *http.Request) (*http.Response, error) {
		if sent++; sent > 1 {
			return answers(200, nil, strings.NewReader("")).RoundTrip(req)
		}
		return nil, io.ErrUnexpectedEOF
	})
	client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: base, Operation: "read", Refused: budgethttp.Wait})}
	_, err := client.Get("http://upstream") //nolint:bodyclose // there is none
	check.Is(t, err, io.ErrUnexpectedEOF)
	check.Equal(t, sent, 1, "times sent")
	want(t, b, 5, 1, 0)
}

// All waits for one request together are no longer than MaxWait.
func TestMaxWaitBoundsAllWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		base := roundTrip(func(req *http.Request) (*http.Response, error) { // tries two connections each time
			if sent++; sent > 5 {
				return answers(200, nil, strings.NewReader("")).RoundTrip(req)
			}
			trace := httptrace.ContextClientTrace(req.Context())
			for range 2 {
				trace.GetConn("upstream")
				trace.GotConn(httptrace.GotConnInfo{})
				trace.WroteHeaderField("Host", nil)
			}
			return nil, context.Cause(req.Context())
		})
		minute := limit.Limit{Name: "minute", Quota: 5, Limit: 5, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Minute)}
		b := open(t, budget.Spec{Limits: []limit.Limit{minute}, Costs: map[string]budget.Cost{"read": {Units: 5}}})
		client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: base, Operation: "read", Refused: budgethttp.Wait, MaxWait: 150 * time.Second})}
		start := time.Now()
		_, err := client.Get("http://upstream") //nolint:bodyclose // there is none
		check.Is(t, err, budget.ErrExhausted)
		check.Equal(t, time.Since(start).Round(time.Second), 2*time.Minute, "waited")
		check.Equal(t, sent, 3, "times sent")
	})
}
