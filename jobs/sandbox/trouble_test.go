package sandbox_test

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs/sandbox"
)

// statuses asks n times and returns each status, 0 where the connection would have been cut.
func statuses(t *testing.T, cfg sandbox.Config, n int) (got []int, use sandbox.Usage) {
	t.Helper()
	s := open(t, cfg)
	for range n {
		got = append(got, statusOrAbort(s, videos))
	}
	return got, s.Usage()
}

func statusOrAbort(s *sandbox.Server, target string) (status int) {
	defer func() {
		if got := recover(); got != nil && got != http.ErrAbortHandler { //nolint:errorlint // the very value, as net/http compares it
			panic(got)
		}
	}()
	return get(s, target).Code
}

func count(statuses []int, want int) (n int64) {
	for _, s := range statuses {
		if s == want {
			n++
		}
	}
	return n
}

func TestFailuresAndDrops(t *testing.T) {
	const n = 300
	tests := []struct {
		name       string
		fail, drop float64
		seed       uint64
	}{
		{"never", 0, 0, 1},
		{"always failing", 1, 0, 1},
		{"always dropping", 0, 1, 1},
		{"dropping goes first", 1, 1, 1},
		{"failing now and then", 0.3, 0, 20260308},
		{"dropping now and then", 0, 0.3, 20261101},
		{"both", 0.3, 0.3, 42},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Logf("seed %d", tt.seed)
			cfg := sandbox.Config{FailRate: tt.fail, DropRate: tt.drop, Seed: tt.seed}
			got, use := statuses(t, cfg, n)
			failed, dropped := count(got, 503), count(got, 0)
			if want := (sandbox.Usage{Requests: n, Units: n, Failed: failed, Dropped: dropped}); use != want {
				t.Errorf("usage %+v, clients saw %+v", use, want)
			}
			near(t, "dropped", dropped, n, tt.drop)
			near(t, "failed", failed, n, (1-tt.drop)*tt.fail)
			if again, _ := statuses(t, cfg, n); !slices.Equal(got, again) {
				t.Error("the same seed gave another sequence")
			}
		})
	}
}

// near checks a count of n draws against its rate: six standard deviations, and exactly where nothing is left to luck.
// The seeds are fixed, so what passes once passes always.
func near(t *testing.T, what string, got, n int64, rate float64) {
	t.Helper()
	mean := float64(n) * rate
	if off := math.Abs(float64(got) - mean); off > 6*math.Sqrt(mean*(1-rate)) {
		t.Errorf("%d of %d %s, want about %v", got, n, what, mean)
	}
}

func TestDropClosesTheConnection(t *testing.T) {
	s := open(t, sandbox.Config{DropRate: 1})
	must.Do(t, s.Listen(t.Context(), ""))
	// net/http asks a GET again when a connection that it used before dies, which the sandbox rightly counts again.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for range 10 {
		resp, err := client.Get(s.URL() + search)
		if err == nil {
			_ = resp.Body.Close()
			t.Fatalf("answered %d", resp.StatusCode)
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("error %v, want the connection closed", err)
		}
	}
	if got, want := s.Usage(), (sandbox.Usage{Requests: 10, Units: 1000, Dropped: 10}); got != want {
		t.Errorf("usage %+v, want %+v", got, want)
	}
}

func TestSeedsDiffer(t *testing.T) {
	one, _ := statuses(t, sandbox.Config{FailRate: 0.5, Seed: 1}, 100)
	two, _ := statuses(t, sandbox.Config{FailRate: 0.5, Seed: 2}, 100)
	if slices.Equal(one, two) {
		t.Error("two seeds gave one sequence")
	}
}

func TestRejectedRequestsNeitherFailNorDrop(t *testing.T) {
	s := open(t, sandbox.Config{Quota: 1, FailRate: 1, DropRate: 1})
	wantStatus(t, s, search, 403)
	wantStatus(t, s, "/youtube/v3/videos", 403)
	if got, want := s.Usage(), (sandbox.Usage{Requests: 2, Rejected: 1}); got != want {
		t.Errorf("usage %+v, want %+v", got, want)
	}
}

func TestLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, sandbox.Config{Latency: 3 * time.Second})
		for _, target := range []string{videos, "/youtube/v3/nosuch?key=k", "/youtube/v3/videos"} {
			start := time.Now()
			get(s, target)
			check.Equal(t, time.Since(start), 3*time.Second, "GET", target, "took")
		}
		start := time.Now()
		wantStatus(t, s, "/_sandbox/usage", 200)
		check.Equal(t, time.Since(start), 0, "usage took")
	})
}

func TestJitter(t *testing.T) {
	took := func(t *testing.T, seed uint64) (all []time.Duration) {
		s := open(t, sandbox.Config{Latency: time.Second, Jitter: time.Minute, Seed: seed})
		for range 20 {
			start := time.Now()
			get(s, videos)
			all = append(all, time.Since(start))
		}
		return all
	}
	synctest.Test(t, func(t *testing.T) {
		one := took(t, 1)
		if low, high := slices.Min(one), slices.Max(one); low < time.Second || high >= time.Minute+time.Second || high-low < 10*time.Second {
			t.Errorf("answers took %v to %v, want them spread over 1s to 61s", low, high)
		}
		check.EqualSlices(t, one, took(t, 1), "the same seed gave other latencies")
		if slices.Equal(one, took(t, 2)) {
			t.Error("two seeds gave one sequence of latencies")
		}
	})
}

func TestCountedAtArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, sandbox.Config{Quota: 1, Latency: time.Hour})
		answered := make(chan int)
		go func() { answered <- get(s, videos).Code }()
		synctest.Wait()
		wantUsage(t, s, 1, 1, 0)
		go func() { answered <- get(s, videos).Code }()
		synctest.Wait()
		wantUsage(t, s, 2, 1, 1)
		if a, b := <-answered, <-answered; a+b != 200+403 {
			t.Errorf("answered %d and %d, want one 200 and one 403", a, b)
		}
	})
}

func TestLatencyEndsWithTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, sandbox.Config{Latency: time.Hour})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		w := httptest.NewRecorder()
		start := time.Now()
		func() {
			defer func() {
				if got := recover(); got != http.ErrAbortHandler { //nolint:errorlint // the very value, as net/http compares it
					t.Errorf("recovered %v, want the handler to abort", got)
				}
			}()
			s.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, videos, nil))
		}()
		check.Equal(t, time.Since(start), time.Second, "waited")
		if w.Body.Len() > 0 {
			t.Errorf("answered %s", w.Body)
		}
		wantUsage(t, s, 1, 1, 0)
	})
}
