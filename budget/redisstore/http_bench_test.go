package redisstore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
	"github.com/quotactl/quotactl/internal/serve"
	"github.com/quotactl/quotactl/internal/storetest"
)

// keptAlive are connections to a server, each for one request at a time.
type keptAlive struct {
	request string
	mu      sync.Mutex // guards free
	free    []*bufio.ReadWriter
}

func dial(b *testing.B, address string, n int, body string) *keptAlive {
	k := &keptAlive{request: fmt.Sprintf("POST /v1/charge HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)}
	for range n {
		var dialer net.Dialer
		conn := must.Get(dialer.DialContext(b.Context(), "tcp", address))(b)
		b.Cleanup(func() { _ = conn.Close() })
		k.free = append(k.free, bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriter(conn)))
	}
	return k
}

// ask sends the request on a connection that nobody uses.
func (k *keptAlive) ask(context.Context) error {
	k.mu.Lock()
	conn := k.free[len(k.free)-1]
	k.free = k.free[:len(k.free)-1]
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		k.free = append(k.free, conn)
		k.mu.Unlock()
	}()
	if _, err := conn.WriteString(k.request); err != nil {
		return err
	}
	if err := conn.Flush(); err != nil {
		return err
	}
	response, err := http.ReadResponse(conn.Reader, nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, response.Body)
	err = errors.Join(err, response.Body.Close())
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", response.Status)
	}
	return err
}

// BenchmarkHTTP compares charges over 200 kept connections, each decided by
// Redis, with requests to a handler that only reads the body and answers as much,
// turn by turn in one run, so that the ratio holds when the machine's speed does
// not. Both include the client.
func BenchmarkHTTP(b *testing.B) {
	const connections = 200
	server := redistest.Start(b)
	store := must.Get(redisstore.Open(b.Context(), server.URL(0), redisstore.Options{Timeout: time.Minute}))(b)
	b.Cleanup(func() { _ = store.Close() })
	opened := must.Get(budget.New(store, budget.Spec{
		Name: "shop/main", Costs: map[string]budget.Cost{"get": {Units: 1}}, Timeout: time.Minute,
		Limits: []limit.Limit{{Name: "hourly", Limit: limit.MaxUnits, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)}},
	}))(b)
	const charge = `{"budget":"shop/main","operation":"get"}`
	answer := strings.Repeat("x", 300)
	empty := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, answer)
	}))
	b.Cleanup(empty.Close)
	deciding := httptest.NewServer(serve.New(serve.Options{Budgets: []*budget.Budget{opened}, Loopback: true}))
	b.Cleanup(deciding.Close)
	decided, nothing := dial(b, deciding.Listener.Addr().String(), connections, charge), dial(b, empty.Listener.Addr().String(), connections, charge)
	var charges, requests float64
	rounds := 0
	for b.Loop() {
		rounds++
		requests += storetest.Rate(b, connections, 200*time.Millisecond, nothing.ask)
		charges += storetest.Rate(b, connections, 200*time.Millisecond, decided.ask)
	}
	b.ReportMetric(charges/float64(rounds), "charges/s")
	b.ReportMetric(requests/float64(rounds), "requests/s")
	b.ReportMetric(charges/requests, "ratio")
}
