package budgethttp_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

func get(t *testing.T, client *http.Client, url string) (*http.Response, string) {
	t.Helper()
	resp := fetch(t, client, url)
	text := must.Get(io.ReadAll(resp.Body))(t)
	must.Do(t, resp.Body.Close())
	return resp, string(text)
}

// read is get, where the response is of no interest.
func read(t *testing.T, client *http.Client, url string) {
	t.Helper()
	resp, _ := get(t, client, url)
	_ = resp.Body.Close()
}

// Every HTTP request is charged by its own pattern: those after redirects, those
// that a client makes again, and those of no pattern.
func TestEveryRequestIsCharged(t *testing.T) {
	var served atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		switch r.URL.Path {
		case "/old":
			http.Redirect(w, r, "/search", http.StatusFound)
		case "/busy":
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			_, _ = io.WriteString(w, "found")
		}
	}))
	defer server.Close()
	spec := budget.Spec{
		Costs: map[string]budget.Cost{
			"search": {Units: 100, Match: []string{"GET 127.0.0.1/search"}},
			"moved":  {Units: 10, Match: []string{"127.0.0.1/old"}},
			"busy":   {Units: 1, Match: []string{"127.0.0.1/busy"}},
		},
		Unknown: budget.Unknown{Allowed: true, Units: 7},
	}
	b := open(t, spec)
	o := &observer{}
	client := &http.Client{Transport: meter(t, b, budgethttp.Options{Observer: o, Labels: budget.Labels{Job: "trending", Run: "r/1"}})}
	for path, cost := range map[string]int64{"/search": 100, "/old": 110, "/busy": 1, "/other": 7} {
		before := spent(t, b)
		read(t, client, server.URL+path)
		check.Equal(t, spent(t, b).units-before.units, cost, path, "cost")
	}
	want(t, b, 218, served.Load(), 0)
	if got := o.check(t); got != 218 || o.charged[0].Source != budget.SourceStore {
		t.Errorf("the observer saw %d units", got)
	}
	for name, wanted := range map[budget.GroupBy]string{budget.ByJob: "trending", budget.ByRun: "r/1"} {
		if s, err := b.Spent(t.Context(), name, 0); err != nil || len(s.Rows) != 1 || s.Rows[0].Name != wanted {
			t.Errorf("by %s: %+v, %v", name, s, err)
		}
	}

	t.Run("unknown operations refused", func(t *testing.T) {
		spec.Unknown = budget.Unknown{}
		b := open(t, spec)
		client := &http.Client{Transport: meter(t, b, budgethttp.Options{Refused: budgethttp.Answer429})}
		before := served.Load()
		_, err := client.Get(server.URL + "/other") //nolint:bodyclose // there is none
		if !errors.Is(err, budget.ErrUnknownOperation) || !strings.Contains(err.Error(), "no pattern in costs.toml matches this request, GET ") || served.Load() != before {
			t.Errorf("error %v", err)
		}
	})
	t.Run("one operation", func(t *testing.T) {
		b := open(t, spec)
		client := &http.Client{Transport: meter(t, b, budgethttp.Options{Operation: "moved"})}
		read(t, client, server.URL+"/search")
		want(t, b, 10, 1, 0)
	})
}

func TestBadOptions(t *testing.T) {
	b := open(t, budget.Spec{Costs: map[string]budget.Cost{"search": {Units: 1}}})
	for name, o := range map[string]budgethttp.Options{
		"operation": {Operation: "serch"},
		"lease":     {Lease: -1},
		"day":       {Lease: budget.MaxLease},
		"wait":      {Refused: budgethttp.Wait, MaxWait: -1},
		"no wait":   {MaxWait: 1},
		"refused":   {Refused: 3},
		"labels":    {Labels: budget.Labels{Job: "a b"}},
		"floor":     {Floor: -1},
		"policy":    {OnStoreError: "ajar"},
	} {
		if transport, err := budgethttp.New(b, o); err == nil || transport != nil || !strings.Contains(err.Error(), "video/key1") {
			t.Errorf("%s: %v", name, err)
		}
	}
	check.Is(t, check.Err(budgethttp.New(b, budgethttp.Options{Operation: "serch"})), budget.ErrUnknownOperation)
}

// What goes to the base is the caller's request, with another context; what comes
// back is the base's response.
func TestRequestsAreNotChanged(t *testing.T) {
	b := open(t, budget.Spec{Costs: map[string]budget.Cost{"upload": {Units: 1}}})
	type keyType struct{}
	var mu sync.Mutex
	var gotConns, idle int
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		mu.Lock()
		defer mu.Unlock()
		gotConns++
	}}
	ctx := httptrace.WithClientTrace(context.WithValue(t.Context(), keyType{}, "kept"), trace)
	req := must.Get(http.NewRequestWithContext(ctx, http.MethodPost, "http://upstream/upload?key=secret", bytes.NewReader([]byte("body"))))(t)
	req.Header.Set("X-Own", "1")
	before, header := *req, req.Header.Clone()
	before.GetBody = nil // functions are never equal
	var sent *http.Request
	body := io.NopCloser(strings.NewReader("answer"))
	base := &idleBase{closed: &idle, roundTrip: func(r *http.Request) (*http.Response, error) {
		sent = r
		httptrace.ContextClientTrace(r.Context()).GotConn(httptrace.GotConnInfo{})
		return &http.Response{StatusCode: 200, Header: http.Header{"X-Theirs": {"2"}}, Body: body, ContentLength: 6, Request: r}, nil
	}}
	client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: base, Operation: "upload"})}
	resp, err := client.Transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // it is of no interest
	if after := *req; after.GetBody == nil {
		t.Error("the caller's request lost its GetBody")
	} else if after.GetBody = nil; !reflect.DeepEqual(after, before) || !reflect.DeepEqual(req.Header, header) {
		t.Error("the caller's request was changed")
	}
	if sent.Context().Value(keyType{}) != "kept" || sent.Context() == ctx {
		t.Error("the base was sent another context's values")
	}
	sameBut := sent.WithContext(ctx)
	if sameBut.GetBody == nil {
		t.Error("the base was sent no GetBody")
	}
	if sameBut.GetBody = nil; !reflect.DeepEqual(*sameBut, before) {
		t.Errorf("the base was sent %+v, want %+v", *sameBut, before)
	}
	check.Equal(t, gotConns, 1, "the caller's trace was called … times")
	text, err := io.ReadAll(resp.Body)
	if string(text) != "answer" || err != nil || resp.ContentLength != 6 || resp.Header.Get("X-Theirs") != "2" {
		t.Errorf("the response is %+v: %q, %v", resp, text, err)
	}
	if err := resp.Request.Context().Err(); err != nil || resp.Request.URL != req.URL {
		t.Errorf("the response's request is of no more use: %v", err)
	}
	client.CloseIdleConnections()
	check.Equal(t, idle, 1, "CloseIdleConnections came through … times")
}

type idleBase struct {
	roundTrip
	closed *int
}

func (b *idleBase) CloseIdleConnections() { *b.closed++ }
