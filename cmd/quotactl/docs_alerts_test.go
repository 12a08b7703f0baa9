package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// The commands and tables of docs/alerts.md.
func TestDocumentedAlerts(t *testing.T) {
	effort.Processes(t)
	var mu sync.Mutex
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		got = append(got, string(text))
	}))
	defer server.Close()
	w := &docWay{&docJob{t: t, dir: t.TempDir()}, "docs/alerts.md"}
	w.env = append(os.Environ(), "YOUTUBE_API_KEY=k", "SLACK_WEBHOOK_URL="+server.URL, "MAIL_PASSWORD=p", "TRENDING_PING_URL="+server.URL)
	config := string(must.Get(os.ReadFile("../../costs.toml"))(t))
	ping := strings.TrimPrefix(w.block("toml", "ping"), "[job.trending]\n")
	w.write("costs.toml", strings.Replace(config, "[job.trending]\n", "[job.trending]\n"+ping, 1)+w.block("toml", "alert")+w.block("toml", "mail"))
	w.write("alert.sh", "set -e\n"+w.block("sh", "alert"))
	check.Contains(t, string(w.run(0, "sh", "alert.sh")), "alert team was delivered", "said")
	check.Equal(t, len(got), 1, "messages")
	check.Contains(t, got[0], `{"text":"quotactl: test`, "the message")
}
