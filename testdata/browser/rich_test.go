package browser

import (
	_ "embed"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/must"
)

//go:embed testdata/costs.toml
var richConfig string

// rich is a world in which each page has something to show: jobs that succeeded, failed, were
// exhausted and are paused, budgets with one limit and with nine, with shares, and with a lock.
func rich(t testing.TB) *world {
	t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page := len(r.URL.Query().Get("page"))
		if page == 3 {
			_, _ = fmt.Fprint(w, `{"items": []}`)
			return
		}
		_, _ = fmt.Fprintf(w, `{"items": [], "next": %q}`, strings.Repeat("x", page+1))
	}))
	t.Cleanup(upstream.Close)
	hooks := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/night" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(hooks.Close)
	w := newWorld(t, strings.ReplaceAll(richConfig, "UPSTREAM", upstream.URL),
		"YOUTUBE_API_KEY=secret-of-the-test", "TEAM_WEBHOOK="+hooks.URL+"/team", "NIGHT_WEBHOOK="+hooks.URL+"/night")

	p := newPast(time.Now())
	p.day()
	for budget, charges := range p.charges {
		w.run(0, "import", w.write("export.jsonl", export(t, budget, p.now, charges)))
	}
	store := must.Get(sqlitestore.Open(t.Context(), filepath.Join(w.dir, "quotactl.db"), sqlitestore.Options{Timeout: time.Minute}))(t)
	p.record(t.Context(), t, store)
	must.Do(t, store.Close())

	w.run(0, "lock", "shop/main", "--for", "3h", "--why", "quota increase pending, ask Ann")
	w.run(0, "lock", "github/bot", "--limit", "search", "--for", "2h", "--why", "abuse detection")
	w.run(0, "run", "--once", "trending")
	w.run(1, "run", "--once", "report")
	w.run(0, "run", "--once", "trends", "orders", "charts.music")
	w.run(0, "pause", "mirror", "--note", "its consumer is being moved until Friday")
	w.run(0, "charge", "github/bot", "graphql", "--reserve", "2h", "--job", "dashboard")
	return w
}
