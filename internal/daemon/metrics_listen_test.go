package daemon

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/internal/must"
)

func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, nil)
		for _, path := range []string{"/healthz", "/readyz"} {
			if code, text := w.get(path); code != http.StatusOK || text != "ok\n" {
				t.Errorf("%s: %d %q", path, code, text)
			}
		}
		w.m.pulse.beaten = time.Now().Add(-PulseLives - time.Minute)
		if code, text := w.get("/healthz"); code != http.StatusServiceUnavailable || !problemSays(text, "not_live", "the scheduler has not checked its clock for 1m30s") {
			t.Errorf("healthz of a scheduler that stands still: %d %q", code, text)
		}
		w.m.Looked()
		if code, _ := w.get("/healthz"); code != http.StatusOK {
			t.Errorf("healthz once it goes on: %d", code)
		}
		close(w.drain)
		if code, text := w.get("/readyz"); code != http.StatusServiceUnavailable || !problemSays(text, "not_ready", "draining: the daemon is stopping") {
			t.Errorf("readyz while draining: %d %q", code, text)
		}
		w.m.pulse.beaten = time.Now().Add(-time.Hour)
		if code, text := w.get("/healthz"); code != http.StatusOK {
			t.Errorf("healthz while draining: %d %q", code, text)
		}
		if code, _ := w.get("/elsewhere"); code != http.StatusNotFound {
			t.Errorf("an unknown path: %d", code)
		}
	})
}

func TestListenAddress(t *testing.T) {
	for text, want := range map[string]string{
		"9090": "127.0.0.1:9090", ":9090": "127.0.0.1:9090", "0.0.0.0:9090": "0.0.0.0:9090", "localhost:0": "localhost:0", "[::1]:80": "[::1]:80", "host:": "", "a:b:c": "",
	} {
		got, err := listenAddress(text)
		if got != want || (err == nil) != (want != "") || err != nil && !errors.As(err, new(*EndpointError)) {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
}

// The server listens until it is stopped.
func TestServe(t *testing.T) {
	w := watch(t, nil)
	var log strings.Builder
	under := must.Get(w.l.serve(t.Context(), &Endpoint{network: "tcp", address: "127.0.0.1:0", loopback: true}, slog.New(slog.NewTextHandler(&log, nil))))(t)
	address := regexp.MustCompile(`address=(\S+)`).FindStringSubmatch(log.String())[1]
	if under.called != address {
		t.Errorf("called %q, the log says %q", under.called, address)
	}
	get := func() (string, error) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/healthz", nil)
		if err != nil {
			return "", err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return "", err
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		return string(body), err
	}
	must.Equal(t, must.Get(get())(t), "ok\n")
	must.Do(t, under.stop())
	if _, err := get(); err == nil {
		t.Error("it still answers")
	}
}

// problemSays reports whether a body is a problem of a reason, with a detail.
func problemSays(body, reason, detail string) bool {
	var got struct{ Reason, Detail string }
	return json.Unmarshal([]byte(body), &got) == nil && got.Reason == reason && got.Detail == detail
}
