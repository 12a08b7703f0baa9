package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/upstreamtest"
)

// newObserver prepares a quotactl meter without a configuration, in front of APIs.
func newObserver(t *testing.T, args ...string) (*program, *upstreamtest.Internet) {
	t.Helper()
	p, _ := newMeter(t, 1, args...)
	must.Do(t, os.Remove(filepath.Join(p.Dir, "costs.toml")))
	in := upstreamtest.Start(t, func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("X-RateLimit-Limit", "600")
		w.Header().Set("X-RateLimit-Remaining", "599")
		w.Header().Set("RateLimit-Policy", `"default";q=700;w=60`)
		w.Header().Set("X-RateLimit-Secret", "hush-"+testKey)
		if req.URL.Path == "/v1/full" {
			w.Header().Set("Retry-After", "2")
			w.WriteHeader(http.StatusTooManyRequests)
		}
		_, _ = fmt.Fprintln(w, "answer to", req.URL.Path)
	}, "api.example.com", "other.example.com", "api.openai.com", "slack.com", "www.googleapis.com")
	p.Env = append(p.Env, "HTTPS_PROXY="+in.Proxy.String(), "SSL_CERT_FILE="+in.Cert)
	return p, in
}

const fiveCalls = `
curl -sSf https://api.example.com/v1/customers/cus_OabcDEFghijKLM -H "Authorization: Bearer $TEST_KEY" >/dev/null
curl -sSf https://api.example.com/v1/customers/cus_9s6XKzkNRiz8i3 -H "Authorization: Bearer $TEST_KEY" >/dev/null
curl -sSf -d x "https://api.example.com/v1/items?api_key=$TEST_KEY" >/dev/null
curl -sS "https://api.example.com/v1/full" >/dev/null
curl -sSf "https://api.example.com/hooks/$TEST_KEY/run" >/dev/null`

func TestObserveTry(t *testing.T) {
	p, _ := newObserver(t, "--observe=api.example.com", "--draft", "draft.toml", "--", "sh", "-c", fiveCalls+"; curl -sS https://other.example.com/")
	p.start()
	p.exits(0)
	fmt.Println(stderrOf(p))
	fmt.Println(string(must.Get(os.ReadFile(filepath.Join(p.Dir, "draft.toml")))(t)))
	_ = slices.Contains[[]string]
	_ = strings.Contains
	check.Equal(t, 1, 1)
}
