package budgethttp_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// refusedAddress is one at which nobody listens.
func refusedAddress(t *testing.T) string {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close() //nolint:errcheck // nobody connected
	return l.Addr().String()
}

// hijacked takes a connection over.
func hijacked(w http.ResponseWriter) net.Conn {
	c, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	return c
}

// What provably never left is given back, all else stays charged.
func TestWhatIsReleased(t *testing.T) {
	type charged int
	const (
		released charged = iota
		settled
	)
	reset := func(w http.ResponseWriter, text string) {
		c := hijacked(w)
		_, _ = io.WriteString(c, text)
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
	plain := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") }
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		base    func(*http.Transport)
		wrap    func(http.RoundTripper) http.RoundTripper
		url     string
		want    charged
		served  bool
		ok      bool
	}{
		"answered":       {handler: plain, want: settled, served: true, ok: true},
		"failed":         {handler: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, want: settled, served: true, ok: true},
		"free status":    {handler: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(304) }, want: released, served: true, ok: true},
		"nobody listens": {url: "http://" + refusedAddress(t), want: released},
		"no such host": {url: "http://nowhere.invalid", base: func(b *http.Transport) {
			b.DialContext = (&net.Dialer{Resolver: &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
				return nil, errors.New("no name server")
			}}}).DialContext
		}, want: released},
		"no TLS":                      {handler: plain, url: "https", want: released},
		"reset before the first byte": {handler: func(w http.ResponseWriter, _ *http.Request) { reset(w, "") }, want: settled, served: true},
		"reset within the header":     {handler: func(w http.ResponseWriter, _ *http.Request) { reset(w, "HTTP/1.1 200 OK\r\nConte") }, want: settled, served: true},
		"not HTTP":                    {handler: func(w http.ResponseWriter, _ *http.Request) { reset(w, "220 smtp\r\n\r\n") }, want: settled, served: true},
		"reset within the body": {handler: func(w http.ResponseWriter, _ *http.Request) {
			reset(w, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
		}, want: settled, served: true, ok: true},
		"a base that reports no connections": {wrap: func(http.RoundTripper) http.RoundTripper {
			return roundTrip(func(*http.Request) (*http.Response, error) { return nil, errors.New("who knows") })
		}, want: settled},
		"a base that answers nothing": {wrap: func(http.RoundTripper) http.RoundTripper {
			return roundTrip(func(*http.Request) (*http.Response, error) { return nil, nil })
		}, want: settled},
	} {
		t.Run(name, func(t *testing.T) {
			served := make(chan struct{}, 8)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				served <- struct{}{}
				c.handler(w, r)
			}))
			defer server.Close()
			base := &http.Transport{}
			defer base.CloseIdleConnections()
			if c.base != nil {
				c.base(base)
			}
			b := open(t, budget.Spec{Costs: map[string]budget.Cost{"read": {Units: 5}}, Feedback: feedback.Rules{Free: []int{304}}})
			o := &observer{}
			options := budgethttp.Options{Base: base, Operation: "read", Observer: o}
			if c.wrap != nil {
				options.Base = c.wrap(base)
			}
			url := c.url
			switch url {
			case "":
				url = server.URL
			case "https":
				url = "https" + strings.TrimPrefix(server.URL, "http")
			}
			client := &http.Client{Transport: meter(t, b, options)}
			resp, err := client.Get(url)
			must.Equal(t, err == nil, c.ok, resp, err)
			if err == nil {
				_, _ = io.ReadAll(resp.Body)
				_ = resp.Body.Close()
			}
			switch c.want {
			case released:
				want(t, b, 0, 0, 0)
			case settled:
				want(t, b, 5, 1, 0)
			}
			check.Equal(t, o.check(t), spent(t, b).units, "the observer saw … units")
			check.Equal(t, len(served) > 0, c.served, "the server was reached")
		})
	}
}

// A request that was given up stays charged, and counts as open for a second more, unless it provably
// never left.
func TestWhatIsGivenUp(t *testing.T) {
	for name, c := range map[string]struct {
		base    func(*testing.T, *http.Transport)
		timeout time.Duration
		left    bool
	}{
		"dialing for too long": {timeout: 20 * time.Millisecond, base: func(t *testing.T, b *http.Transport) {
			b.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-t.Context().Done() // after the request has ended
				return nil, ctx.Err()
			}
		}},
		"answering for too long": {timeout: 100 * time.Millisecond, left: true},
		"no header in time":      {base: func(_ *testing.T, b *http.Transport) { b.ResponseHeaderTimeout = 50 * time.Millisecond }, left: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var served atomic.Bool
				base := serve(t, func(_ http.ResponseWriter, r *http.Request) {
					served.Store(true)
					<-r.Context().Done()
				})
				if c.base != nil {
					c.base(t, base)
				}
				b, o := open(t, budget.Spec{Costs: map[string]budget.Cost{"read": {Units: 5}}}), &observer{}
				client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: base, Operation: "read", Observer: o}), Timeout: c.timeout}
				resp, err := client.Get("http://upstream") //nolint:bodyclose // there is none
				must.Equal(t, err != nil, true, resp)
				if c.left {
					time.Sleep(time.Second - time.Microsecond)
					check.Equal(t, held(t, b), ledger{5, 1, 1}, "while it may arrive")
					time.Sleep(time.Microsecond)
					want(t, b, 5, 1, 0)
				} else {
					want(t, b, 0, 0, 0)
				}
				check.Equal(t, o.check(t), spent(t, b).units, "units that the observer saw")
				check.Equal(t, served.Load(), c.left, "the server was reached")
			})
		})
	}
}

// A request whose context has ended is not charged, and one whose context ends while
// it is charged is given back. Its body is closed.
func TestContextsThatHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, budget.Spec{Limits: []limit.Limit{hourly(5)}, Costs: map[string]budget.Cost{"read": {Units: 5}}})
		base := roundTrip(func(*http.Request) (*http.Response, error) {
			t.Error("the base was called")
			return nil, errors.New("called")
		})
		cause := errors.New("enough")
		send := func(o budgethttp.Options, cancel func(context.CancelCauseFunc)) {
			t.Helper()
			ctx, cancelCause := context.WithCancelCause(t.Context())
			cancel(cancelCause)
			body := &closing{}
			o.Base, o.Operation = base, "read"
			req := must.Get(http.NewRequestWithContext(ctx, http.MethodPost, "http://upstream", body))(t)
			resp, err := meter(t, b, o).RoundTrip(req) //nolint:bodyclose // there is none
			if resp != nil || err == nil || !body.closed {
				t.Errorf("%+v, %v; closed: %v", resp, err, body.closed)
			}
		}
		send(budgethttp.Options{}, func(cancel context.CancelCauseFunc) { cancel(cause) })
		want(t, b, 0, 0, 0)
		// The observer is called between the charge and the sending.
		send(budgethttp.Options{}, func(cancel context.CancelCauseFunc) { time.AfterFunc(0, func() { cancel(cause) }); synctest.Wait() })
		want(t, b, 0, 0, 0)
		var o endsWhenCharged
		send(budgethttp.Options{Observer: &o}, func(cancel context.CancelCauseFunc) { o.cancel = cancel })
		want(t, b, 0, 0, 0)
		// While it waits.
		must.Get(b.Charge(t.Context(), budget.Call{Operation: "read"}))(t)
		send(budgethttp.Options{Refused: budgethttp.Wait}, func(cancel context.CancelCauseFunc) {
			time.AfterFunc(time.Minute, func() { cancel(cause) })
		})
		want(t, b, 5, 1, 0)
	})
}

type endsWhenCharged struct {
	observer
	cancel context.CancelCauseFunc
}

func (o *endsWhenCharged) Charged(r budget.Receipt) {
	o.observer.Charged(r)
	o.cancel(nil)
}

// closing is a request's body that notes whether it was closed, and read.
type closing struct{ closed, read bool }

func (c *closing) Read([]byte) (int, error) {
	c.read = true
	return 0, io.EOF
}

func (c *closing) Close() error {
	c.closed = true
	return nil
}

// givenUp is a store whose caller gives up while it charges: the answer is lost.
type givenUp struct {
	driver.Store
	giveUp func()
}

func (s givenUp) Decide(ctx context.Context, batch driver.Batch) (driver.Decisions, error) {
	got, err := s.Store.Decide(ctx, batch)
	if s.giveUp(); err == nil {
		err = ctx.Err()
	}
	return got, err
}

// What was charged before the caller knew of it, and is not sent, is given back.
func TestWhatIsChargedAsTheCallerGivesUpIsReleased(t *testing.T) {
	for _, refused := range []budgethttp.Refused{budgethttp.Fail, budgethttp.Wait} {
		ctx, giveUp := context.WithCancel(t.Context())
		store := inMemory()
		spec := budget.Spec{Name: "video/key1", Limits: []limit.Limit{hourly(1000)}, Costs: map[string]budget.Cost{"read": {Units: 5}}}
		b := must.Get(budget.New(givenUp{store, giveUp}, spec))(t)
		base := roundTrip(func(*http.Request) (*http.Response, error) { return nil, errors.New("sent") })
		req := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, "http://upstream", nil))(t)
		_, err := meter(t, b, budgethttp.Options{Base: base, Operation: "read", Refused: refused}).RoundTrip(req) //nolint:bodyclose // there is none
		check.Is(t, err, context.Canceled)
		want(t, must.Get(budget.New(store, spec))(t), 0, 0, 0)
	}
}

// decidingStore takes a while to decide.
type decidingStore struct{ driver.Store }

func (s decidingStore) Decide(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
	time.Sleep(time.Second)
	return s.Store.Decide(context.WithoutCancel(ctx), b)
}

// A request whose context ends while the store decides is given back once it has: the release does
// not overtake the charge.
func TestGivenUpWhileTheStoreDecides(t *testing.T) {
	for _, refused := range []budgethttp.Refused{budgethttp.Fail, budgethttp.Wait} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New(func() int64 { return time.Now().UnixMicro() })
			b := must.Get(budget.New(decidingStore{store}, budget.Spec{
				Name: "video/key1", Timeout: 5 * time.Second, Limits: []limit.Limit{hourly(10)}, Costs: map[string]budget.Cost{"read": {Units: 5}},
			}))(t)
			client := &http.Client{Transport: meter(t, b, budgethttp.Options{
				Base: answers(200, nil, strings.NewReader("")), Operation: "read", Refused: refused, MaxWait: time.Duration(refused/budgethttp.Wait) * time.Minute,
			})}
			first := make(chan struct{})
			go func() {
				defer close(first)
				read(t, client, "http://upstream")
			}()
			synctest.Wait() // the store decides it, and then the second
			given := time.Now()
			for _, after := range []time.Duration{500 * time.Millisecond, 1500 * time.Millisecond} { // before it is asked, and while it decides
				ctx, cancel := context.WithDeadline(t.Context(), given.Add(after))
				_, err := client.Do(must.Get(http.NewRequestWithContext(ctx, http.MethodGet, "http://upstream", nil))(t)) //nolint:bodyclose // there is none
				cancel()
				check.Is(t, err, context.DeadlineExceeded)
				if after < time.Second {
					check.Equal(t, time.Since(given), after, "it is over at once")
				}
			}
			<-first
			time.Sleep(time.Minute)
			want(t, b, 5, 1, 0)
		})
	}
}
