package sandbox_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs/sandbox"
)

const (
	videos = "/youtube/v3/videos?chart=mostPopular&regionCode=US&key=k"
	search = "/youtube/v3/search?q=cats&key=k"
)

// open makes a server that is closed with the test.
func open(t *testing.T, cfg sandbox.Config) *sandbox.Server {
	t.Helper()
	s := must.Get(sandbox.New(cfg))(t)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// get asks the handler, without a connection.
func get(s *sandbox.Server, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
	return w
}

func wantStatus(t *testing.T, s *sandbox.Server, target string, want int) {
	t.Helper()
	if w := get(s, target); w.Code != want {
		t.Fatalf("GET %s: %d, want %d: %s", target, w.Code, want, w.Body)
	}
}

func wantUsage(t *testing.T, s *sandbox.Server, requests, units, rejected int64) {
	t.Helper()
	got := s.Usage()
	got.Failed, got.Dropped = 0, 0
	if want := (sandbox.Usage{Requests: requests, Units: units, Rejected: rejected}); got != want {
		t.Fatalf("usage is %+v, want %+v", got, want)
	}
}

func TestCosts(t *testing.T) {
	tests := []struct {
		name, method, target string
		status               int
		units                int64
	}{
		{"videos", "GET", videos, 200, 1},
		{"channels", "GET", "/youtube/v3/channels?id=a&key=k", 200, 1},
		{"playlistItems", "GET", "/youtube/v3/playlistItems?playlistId=p&key=k", 200, 1},
		{"commentThreads", "GET", "/youtube/v3/commentThreads?videoId=v&key=k", 200, 1},
		{"search", "GET", search, 200, 100},
		{"captions", "GET", "/youtube/v3/captions?videoId=v&key=k", 200, 50},
		{"unknown list", "GET", "/youtube/v3/nosuch?key=k", 404, 1},
		{"unknown version", "GET", "/youtube/v2/videos?key=k", 404, 1},
		{"trailing slash", "GET", "/youtube/v3/videos/?key=k", 404, 1},
		{"doubled slash", "GET", "//youtube/v3/videos?key=k", 404, 1},
		{"another API", "GET", "/?key=k", 404, 1},
		{"beside the sandbox's own", "GET", "/_sandboxes?key=k", 404, 1},
		{"unknown method", "POST", videos, 404, 1},
		{"head", "HEAD", videos, 404, 1},
		{"bad search page", "GET", search + "&pageToken=x", 400, 1},
		{"bad size", "GET", videos + "&maxResults=51", 400, 1},
		{"no key", "GET", "/youtube/v3/videos", 403, 0},
		{"empty key", "GET", "/youtube/v3/videos?key=", 403, 0},
		{"no key, unknown list", "GET", "/youtube/v3/nosuch", 403, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := open(t, sandbox.Config{})
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequest(tt.method, tt.target, nil))
			check.Equal(t, w.Code, tt.status, "status")
			wantUsage(t, s, 1, tt.units, 0)
		})
	}
}

func TestCredentials(t *testing.T) {
	tests := []struct {
		header, value string
		status        int
	}{
		{"X-Goog-Api-Key", "k", 200},
		{"X-Goog-Api-Key", "", 403},
		{"Authorization", "Bearer t", 200},
		{"Authorization", "bearer t", 200},
		{"Authorization", "Bearer ", 403},
		{"Authorization", "Basic t", 403},
	}
	for _, tt := range tests {
		t.Run(tt.header+" "+tt.value, func(t *testing.T) {
			s := open(t, sandbox.Config{})
			r := httptest.NewRequest(http.MethodGet, "/youtube/v3/videos", nil)
			r.Header.Set(tt.header, tt.value)
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			check.Equal(t, w.Code, tt.status, "status")
		})
	}
}

func TestQuotaIsExact(t *testing.T) {
	tests := []struct {
		name   string
		quota  int64
		calls  []string
		status []int
		units  int64
	}{
		{"ends at the quota", 2, []string{videos, videos, videos}, []int{200, 200, 403}, 2},
		{"a call that fits exactly", 101, []string{videos, search, videos}, []int{200, 200, 403}, 101},
		{"one unit short", 100, []string{videos, search, videos}, []int{200, 403, 200}, 2},
		{"invalid calls do not fit either", 1, []string{videos, "/youtube/v3/nosuch?key=k"}, []int{200, 403}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := open(t, sandbox.Config{Quota: tt.quota})
			var rejected int64
			for i, target := range tt.calls {
				wantStatus(t, s, target, tt.status[i])
				if tt.status[i] == 403 {
					rejected++
				}
			}
			wantUsage(t, s, int64(len(tt.calls)), tt.units, rejected)
		})
	}
}

func TestDefaultQuota(t *testing.T) {
	s := open(t, sandbox.Config{})
	for range 100 {
		wantStatus(t, s, search, 200)
	}
	wantStatus(t, s, videos, 403)
	wantUsage(t, s, 101, 10_000, 1)
}

func TestQuotaUnderConcurrentClients(t *testing.T) {
	const clients, each, quota = 200, 10, 1234
	s := open(t, sandbox.Config{Quota: quota})
	must.Do(t, s.Listen(t.Context(), ""))
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	defer client.CloseIdleConnections()
	var granted, rejected atomic.Int64
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for range each {
				resp, err := client.Get(s.URL() + videos)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				switch resp.StatusCode {
				case 200:
					granted.Add(1)
				case 403:
					rejected.Add(1)
				default:
					t.Errorf("status %d", resp.StatusCode)
				}
			}
		})
	}
	all.Wait()
	check.Equal(t, granted.Load(), quota)
	check.Equal(t, rejected.Load(), clients*each-quota)
	wantUsage(t, s, clients*each, quota, clients*each-quota)
}

func TestDayEndsAtPacificMidnight(t *testing.T) {
	tests := []struct {
		name       string
		begin, end string // the day's first instant and the next one's
		hours      int
	}{
		{"winter", "2026-01-15T08:00:00Z", "2026-01-16T08:00:00Z", 24},
		{"summer", "2026-07-15T07:00:00Z", "2026-07-16T07:00:00Z", 24},
		{"clocks forward", "2026-03-08T08:00:00Z", "2026-03-09T07:00:00Z", 23},
		{"clocks back", "2026-11-01T07:00:00Z", "2026-11-02T08:00:00Z", 25},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			begin, end := instant(t, tt.begin), instant(t, tt.end)
			must.Equal(t, end.Sub(begin), time.Duration(tt.hours)*time.Hour, "the table's day has")
			var now time.Time
			s := open(t, sandbox.Config{Quota: 2, Now: func() time.Time { return now }})

			now = begin.Add(-time.Microsecond)
			wantStatus(t, s, videos, 200)
			now = begin
			wantUsage(t, s, 0, 0, 0)
			wantStatus(t, s, videos, 200)
			now = end.Add(-time.Microsecond)
			wantStatus(t, s, videos, 200)
			wantStatus(t, s, videos, 403)
			now = end.Add(-time.Nanosecond)
			wantStatus(t, s, videos, 403)
			wantUsage(t, s, 4, 2, 2)
			now = end
			wantUsage(t, s, 0, 0, 0)
			wantStatus(t, s, videos, 200)
			wantUsage(t, s, 1, 1, 0)

			now = end.Add(-time.Microsecond) // a clock set back finds the day as it was left
			wantStatus(t, s, videos, 403)
		})
	}
}

func instant(t *testing.T, s string) time.Time {
	t.Helper()
	return must.Get(time.Parse(time.RFC3339Nano, s))(t)
}

func TestUsageEndpointIsFree(t *testing.T) {
	s := open(t, sandbox.Config{Quota: 100})
	get(s, search)
	get(s, videos)
	for range 2 {
		w := get(s, "/_sandbox/usage")
		if got, want := w.Body.String(), `{"requests":2,"units":100,"rejected":1}`; w.Code != 200 || got != want {
			t.Fatalf("%d %s, want 200 %s", w.Code, got, want)
		}
	}
	wantStatus(t, s, "/_sandbox/nosuch?key=k", 404)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/_sandbox/usage", nil))
	check.Equal(t, w.Code, 404, "POST")
	wantUsage(t, s, 2, 100, 1)
}

func TestConfigOutOfRange(t *testing.T) {
	nan := 0.0
	nan /= nan
	tests := []struct {
		cfg  sandbox.Config
		want string
	}{
		{sandbox.Config{Quota: -1}, "quota is -1 units"},
		{sandbox.Config{Results: -1}, "results is -1"},
		{sandbox.Config{Results: 1_000_001}, "results is 1000001"},
		{sandbox.Config{Latency: -1}, "latency is -1ns"},
		{sandbox.Config{Jitter: 25 * time.Hour}, "jitter is 25h0m0s"},
		{sandbox.Config{FailRate: 1.5}, "fail rate is 1.5"},
		{sandbox.Config{DropRate: -0.1}, "drop rate is -0.1"},
		{sandbox.Config{DropRate: nan}, "drop rate is NaN"},
	}
	for _, tt := range tests {
		t.Run(tt.want, func(t *testing.T) {
			s, err := sandbox.New(tt.cfg)
			if err == nil {
				_ = s.Close()
				t.Fatalf("%+v was taken", tt.cfg)
			}
			if !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "give ") {
				t.Errorf("error %q: want it to say %q and what to give", err, tt.want)
			}
		})
	}
	at := sandbox.Config{Quota: 1, Results: 1_000_000, Latency: 24 * time.Hour, Jitter: 24 * time.Hour, FailRate: 1, DropRate: 1}
	if s, err := sandbox.New(at); err != nil {
		t.Errorf("%s: %v", fmt.Sprintf("%+v", at), err)
	} else {
		_ = s.Close()
	}
}
