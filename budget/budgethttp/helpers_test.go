package budgethttp_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/must"
)

// open makes a budget in memory: 1000 units an hour, where the spec has no limits.
func open(t *testing.T, spec budget.Spec) *budget.Budget {
	t.Helper()
	store := memstore.New(func() int64 { return time.Now().UnixMicro() })
	spec.Name = "video/key1"
	if spec.Limits == nil {
		spec.Limits = []limit.Limit{hourly(1000)}
	}
	return must.Get(budget.New(store, spec, budget.WithClosers(store)))(t)
}

func hourly(units int64) limit.Limit {
	return limit.Limit{Name: "hourly", Quota: units, Limit: units, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)}
}

func meter(t *testing.T, b *budget.Budget, o budgethttp.Options) *budgethttp.Transport {
	t.Helper()
	return must.Get(budgethttp.New(b, o))(t)
}

// ledger is what a budget holds.
type ledger struct{ units, calls, open int64 }

// spent reads the ledger, once all is in it.
func spent(t *testing.T, b *budget.Budget) ledger {
	t.Helper()
	must.Do(t, b.Flush(t.Context()))
	return held(t, b)
}

// held reads the ledger without waiting.
func held(t *testing.T, b *budget.Budget) ledger {
	t.Helper()
	s := must.Get(b.Spent(t.Context(), budget.ByOperation, 0))(t)
	var l ledger
	for _, row := range s.Rows {
		l.units, l.calls, l.open = l.units+row.Units, l.calls+row.Calls, l.open+row.Open
	}
	return l
}

// want compares what the ledger holds.
func want(t *testing.T, b *budget.Budget, units, calls, open int64) {
	t.Helper()
	if got, want := spent(t, b), (ledger{units, calls, open}); got != want {
		t.Errorf("the ledger holds %+v, want %+v", got, want)
	}
}

// observer notes what a Transport tells.
type observer struct {
	mu       sync.Mutex
	charged  []budget.Receipt
	answered []time.Duration
	settled  map[string]int64
	twice    []string
	verdicts []budgethttp.Verdict
	drifts   []budget.Drift
	unread   []budgethttp.Unread
}

func (o *observer) note(what func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	what()
}

func (o *observer) Charged(r budget.Receipt) { o.note(func() { o.charged = append(o.charged, r) }) }

func (o *observer) Answered(r budget.Receipt, took time.Duration) {
	o.note(func() { o.answered = append(o.answered, took) })
}

func (o *observer) Settled(r budget.Receipt, units int64) {
	o.note(func() {
		if o.settled == nil {
			o.settled = map[string]int64{}
		}
		if _, known := o.settled[r.ID]; known {
			o.twice = append(o.twice, r.ID)
		}
		o.settled[r.ID] = units
	})
}

func (o *observer) Refused(v budgethttp.Verdict) {
	o.note(func() { o.verdicts = append(o.verdicts, v) })
}

func (o *observer) Drifted(d budget.Drift) { o.note(func() { o.drifts = append(o.drifts, d) }) }

func (o *observer) Unread(u budgethttp.Unread) { o.note(func() { o.unread = append(o.unread, u) }) }

// check fails unless each charge was settled once; it is their units.
func (o *observer) check(t *testing.T) (units int64) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.charged {
		n, ok := o.settled[r.ID]
		if !ok {
			t.Errorf("%s was not settled", r.ID)
		}
		units += n
	}
	if len(o.twice) > 0 || len(o.settled) != len(o.charged) {
		t.Errorf("%d charges, %d settled, twice: %v", len(o.charged), len(o.settled), o.twice)
	}
	return units
}

// roundTrip is a base of one function.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// do makes a request, whose response's body the caller closes.
func do(t *testing.T, client *http.Client, req *http.Request) *http.Response {
	t.Helper()
	resp := must.Get(client.Do(req))(t)
	return resp
}

// fetch is do for a GET.
func fetch(t *testing.T, client *http.Client, url string) *http.Response {
	t.Helper()
	return do(t, client, must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))(t))
}

// readAll reads a response's body, which must be what was sent.
func readAll(t *testing.T, resp *http.Response, sent string) {
	t.Helper()
	text, err := io.ReadAll(resp.Body)
	if string(text) != sent || err != nil {
		t.Errorf("the caller got %d bytes of %d, %v", len(text), len(sent), err)
	}
}

// counting is a server that counts its requests.
type counting struct {
	*httptest.Server
	count atomic.Int64
}

func newCounting(t *testing.T) *counting {
	t.Helper()
	c := &counting{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c.count.Add(1)
		_, _ = io.WriteString(w, "ok")
	}))
	t.Cleanup(c.Close)
	return c
}
