package budgethttp_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
)

// dying answers the first request of each connection, and closes it when it has read
// another, which it counts as well.
func dying(t *testing.T) (address string, counted *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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
	return "http://" + l.Addr().String(), counted
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
	if n := counted.Load(); n != 7 {
		t.Errorf("the server counted %d, want 7", n)
	}
	if got := o.check(t); got != 35 {
		t.Errorf("the observer was told of %d units", got)
	}
}

// Where there are no units left for that, the request fails; what may have gone out
// nevertheless is recorded as a debt.
func TestWhatTheBaseSendsAgainIsRefused(t *testing.T) {
	url, counted := dying(t)
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	b := open(t, budget.Spec{Limits: []budget.Limit{hourly(10)}, Costs: map[string]budget.Cost{"read": {Units: 5}}})
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
	if got := o.check(t); got != 15 {
		t.Errorf("the observer was told of %d units", got)
	}
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
