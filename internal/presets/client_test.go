package presets_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/must"
)

// client is an HTTP client that a preset meters. Its server is at the other end of
// a pipe, so that all of it runs in fake time.
type client struct {
	*http.Client
	budget *budget.Budget
	seen   observer
}

// newClient is one whose server answers every request with the same bytes.
func newClient(t *testing.T, preset, name string, answer []byte) *client {
	t.Helper()
	spec := must.Get(load(t, preset).Spec(name))(t)
	return newClientFor(t, spec, answer)
}

func newClientFor(t *testing.T, spec budget.Spec, answer []byte) *client {
	t.Helper()
	store := memstore.New(func() int64 { return time.Now().UnixMicro() })
	b := must.Get(budget.New(store, spec))(t)
	base := &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go serve(theirs, answer)
		return ours, nil
	}}
	base.DialTLSContext = base.DialContext // the pipe is private enough
	c := &client{budget: b}
	transport := must.Get(budgethttp.New(b, budgethttp.Options{Base: base, Observer: &c.seen}))(t)
	c.Client = &http.Client{Transport: transport}
	return c
}

// serve answers one request.
func serve(conn net.Conn, answer []byte) {
	defer func() { _ = conn.Close() }()
	req, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, req.Body)
	_, _ = conn.Write(answer)
}

// observer keeps what the transport tells of one request.
type observer struct {
	budgethttp.NoObserver
	charged []budget.Receipt
	settled map[string]int64 // final units by operation
	drifts  []budget.Drift
	unread  []budgethttp.Unread
}

func (o *observer) Charged(r budget.Receipt) { o.charged = append(o.charged, r) }

func (o *observer) Settled(r budget.Receipt, units int64) {
	if o.settled == nil {
		o.settled = map[string]int64{}
	}
	o.settled[r.Operation] = units
}

func (o *observer) Refused(budgethttp.Verdict) {}

func (o *observer) Drifted(d budget.Drift) { o.drifts = append(o.drifts, d) }

func (o *observer) Unread(u budgethttp.Unread) { o.unread = append(o.unread, u) }

// ask makes a request, reads the response to its end, and returns what the upstream
// meant by it; false: it refused nothing.
func (c *client) ask(t *testing.T, method, url string) (budgethttp.Verdict, bool) {
	t.Helper()
	c.seen = observer{}
	req := must.Get(http.NewRequestWithContext(t.Context(), method, url, strings.NewReader("")))(t)
	resp, err := c.Do(req)
	must.Do(t, err)
	_, err = io.Copy(io.Discard, resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return budgethttp.VerdictOf(resp)
}

// locks are those that stand.
func (c *client) locks(t *testing.T) []budget.Lock {
	t.Helper()
	status := must.Get(c.budget.Status(t.Context()))(t)
	return status.Locks
}

// fixture is a file of testdata.
func fixture(t *testing.T, name string) []byte {
	t.Helper()
	return must.Get(os.ReadFile(filepath.Join("testdata", name)))(t)
}
