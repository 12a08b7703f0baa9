package redisstore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
	"github.com/quotactl/quotactl/internal/serve"
	"github.com/quotactl/quotactl/internal/storetest"
)

// keptAlive are connections to a server, each for one request at a time.
type keptAlive struct {
	request string
	mu      sync.Mutex // guards free
	free    []*keptConn
	all     []*keptConn
}

// keptConn is one of them, and how long each of its answers took.
type keptConn struct {
	*bufio.ReadWriter
	took []time.Duration
}

func dial(b *testing.B, address string, n int, body string) *keptAlive {
	k := &keptAlive{request: fmt.Sprintf("POST /v1/charge HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)}
	for range n {
		var dialer net.Dialer
		conn := must.Get(dialer.DialContext(b.Context(), "tcp", address))(b)
		b.Cleanup(func() { _ = conn.Close() })
		k.all = append(k.all, &keptConn{ReadWriter: bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriter(conn))})
	}
	k.free = slices.Clone(k.all)
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
	began := time.Now()
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
	conn.took = append(conn.took, time.Since(began))
	return err
}

// p99 is the time within which 99 of 100 requests were answered, in ms.
func (k *keptAlive) p99() float64 {
	var took []time.Duration
	for _, conn := range k.all {
		took = append(took, conn.took...)
	}
	slices.Sort(took)
	return float64(took[len(took)*99/100].Microseconds()) / 1000
}

// sample asks once, and returns the answer's header and body.
func (k *keptAlive) sample(b *testing.B) (http.Header, []byte) {
	conn := k.all[0]
	must.Get(conn.WriteString(k.request))(b)
	must.Do(b, conn.Flush())
	response, err := http.ReadResponse(conn.Reader, nil)
	must.Do(b, err)
	defer func() { _ = response.Body.Close() }()
	return response.Header, must.Get(io.ReadAll(response.Body))(b)
}

// granting is a store that grants whatever it is asked.
type granting struct{ driver.Store }

func (granting) Decide(_ context.Context, batch driver.Batch) (driver.Decisions, error) {
	decided := driver.Decisions{Now: batch.Now, Items: make([]driver.Decision, len(batch.Items)), Used: make([]int64, len(batch.Limits))}
	for i, item := range batch.Items {
		decided.Items[i] = driver.Decision{Result: driver.Granted, Units: item.Units, At: batch.Now, Remaining: limit.MaxUnits}
	}
	return decided, nil
}

func (granting) Close() error { return nil }

// BenchmarkHTTP compares charges over 200 kept connections with requests to a handler
// that only reads the body and gives the same answer, turn by turn in one run, so that
// the ratios hold when the machine's speed does not. Both include the client, and so does
// the processor time of this process. None is a store that grants
// at once: what all but the store costs.
func BenchmarkHTTP(b *testing.B) {
	stores := map[string]func(b *testing.B) driver.Store{
		"none": func(*testing.B) driver.Store { return granting{} },
		"Redis": func(b *testing.B) driver.Store {
			return must.Get(redisstore.Open(b.Context(), redistest.Start(b).URL(0), redisstore.Options{Timeout: time.Minute}))(b)
		},
		"SQLite": func(b *testing.B) driver.Store {
			return must.Get(sqlitestore.Open(b.Context(), filepath.Join(b.TempDir(), "q.db"), sqlitestore.Options{Timeout: time.Minute}))(b)
		},
	}
	for _, kind := range slices.Sorted(maps.Keys(stores)) {
		b.Run(kind, func(b *testing.B) { benchHTTP(b, stores[kind](b)) })
	}
}

func benchHTTP(b *testing.B, store driver.Store) {
	const connections = 200
	b.Cleanup(func() { _ = store.Close() })
	opened := must.Get(budget.New(store, budget.Spec{
		Name: "shop/main", Costs: map[string]budget.Cost{"get": {Units: 1}}, Timeout: 4 * time.Second, // as long as needs no longer deadlines
		Limits: []limit.Limit{{Name: "hourly", Limit: limit.MaxUnits, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)}},
	}))(b)
	const charge = `{"budget":"shop/main","operation":"get"}`
	deciding := httptest.NewServer(serve.New(serve.Options{Budgets: []*budget.Budget{opened}, Loopback: true}))
	b.Cleanup(deciding.Close)
	decided := dial(b, deciding.Listener.Addr().String(), connections, charge)
	header, answer := decided.sample(b)
	empty := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for name, values := range header {
			if name != "Date" && name != "Content-Length" {
				w.Header()[name] = values
			}
		}
		_, _ = w.Write(answer)
	}))
	b.Cleanup(empty.Close)
	nothing := dial(b, empty.Listener.Addr().String(), connections, charge)
	var rates, used [2]float64
	rounds := 0
	for b.Loop() {
		rounds++
		for i, ask := range []func(context.Context) error{nothing.ask, decided.ask} {
			before := storetest.Processor(b)
			began := time.Now()
			rate := storetest.Rate(b, connections, 200*time.Millisecond, ask)
			rates[i] += rate
			used[i] += float64((storetest.Processor(b) - before).Microseconds()) / (rate * time.Since(began).Seconds())
		}
	}
	b.ReportMetric(rates[1]/float64(rounds), "charges/s")
	b.ReportMetric(rates[0]/float64(rounds), "requests/s")
	b.ReportMetric(rates[1]/rates[0], "ratio")
	b.ReportMetric(used[1]/float64(rounds), "cpu-µs/charge")
	b.ReportMetric(used[0]/float64(rounds), "cpu-µs/request")
	b.ReportMetric(decided.p99(), "charge-p99-ms")
	b.ReportMetric(decided.p99()/nothing.p99(), "p99-ratio")
}
