package sandbox_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs/sandbox"
)

func TestShutdownAnswersWhoWaits(t *testing.T) {
	for _, how := range []string{"context", "close"} {
		t.Run(how, func(t *testing.T) {
			arrived := make(chan struct{}, 1)
			s := open(t, sandbox.Config{Latency: time.Hour, Now: func() time.Time {
				select {
				case arrived <- struct{}{}:
				default:
				}
				return time.Now()
			}})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			must.Do(t, s.Listen(ctx, ""))
			type result struct {
				status int
				body   string
				err    error
			}
			answered := make(chan result, 1)
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			go func() {
				resp, err := client.Get(s.URL() + videos)
				if err != nil {
					answered <- result{err: err}
					return
				}
				defer func() { _ = resp.Body.Close() }()
				body, err := io.ReadAll(resp.Body)
				answered <- result{resp.StatusCode, string(body), err}
			}()
			<-arrived
			switch how {
			case "context":
				cancel()
			case "close":
				check.NoError(t, s.Close(), "closing")
			}
			check.NoError(t, s.Wait(), "waiting")
			if got := <-answered; got.err != nil || got.status != 200 || !strings.Contains(got.body, "youtube#video") {
				t.Errorf("answered %+v, want the page", got)
			}
			if resp, err := client.Get(s.URL() + videos); err == nil {
				_ = resp.Body.Close()
				t.Errorf("still answers: %d", resp.StatusCode)
			}
			if err := s.Listen(t.Context(), ""); err == nil {
				t.Error("listens again")
			}
		})
	}
}

func TestListenErrors(t *testing.T) {
	taken := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer func() { _ = taken.Close() }()
	for _, addr := range []string{taken.Addr().String(), "8080", "127.0.0.1:http-no-such"} {
		s := open(t, sandbox.Config{})
		if err := s.Listen(t.Context(), addr); err == nil || !strings.Contains(err.Error(), "give a free host:port") {
			t.Errorf("listening on %s: error %v", addr, err)
		}
		check.Equal(t, s.URL(), "", "URL is … and nothing listens")
		check.NoError(t, s.Wait(), "waiting for nothing")
		check.NoError(t, s.Listen(t.Context(), ""), "listening after a failure")
	}
	s := open(t, sandbox.Config{})
	_ = s.Close()
	if err := s.Listen(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("listening when closed: error %v", err)
	}
}

func TestURLCanBeReached(t *testing.T) {
	for _, addr := range []string{"", "127.0.0.1:0", "0.0.0.0:0", ":0"} {
		s := open(t, sandbox.Config{})
		must.Do(t, s.Listen(t.Context(), addr))
		if !strings.HasPrefix(s.URL(), "http://127.0.0.1:") {
			t.Errorf("listening on %q gave %s", addr, s.URL())
		}
		resp, err := http.Get(s.URL() + "/_sandbox/usage")
		must.Do(t, err)
		_ = resp.Body.Close()
	}
}

func TestClosedIsNotCounted(t *testing.T) {
	s := open(t, sandbox.Config{})
	wantStatus(t, s, videos, 200)
	for range 2 {
		must.Do(t, s.Close())
	}
	wantError(t, s, videos, 500, "global", "internalError")
	wantUsage(t, s, 1, 1, 0)
}
