package main

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

const alertConfig = `
[store]
url = "sqlite:FOLDER/quotactl.db"
timeout = "1m"
[upstream.shop.costs]
"get" = 1
[upstream.shop.limit.daily]
limit  = 100
window = "24h"
[upstream.shop.credential.main]
[job.fails]
budget   = "shop/main"
schedule = "0 0 1 1 *"
command  = ["sh", "-c", "echo the last line of $HOOK; exit 3"]
ping_env = "PING"
[alert.team]
url_env = "HOOK"
on      = ["exhausted", "failed"]
`

// theHook is a webhook that several daemons call, each at a path of its own.
type theHook struct {
	mu     sync.Mutex
	got    map[string][]string // the ids that were answered, by kind and phase
	tried  map[string][]string // the daemons that sent an id
	first  chan string         // the daemon of the first request, which is never answered
	pings  []string
	status int // of all that is answered
}

func (h *theHook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	h.mu.Lock()
	if strings.HasPrefix(r.URL.Path, "/ping") {
		h.pings = append(h.pings, r.URL.Path+" "+string(text))
		h.mu.Unlock()
		return
	}
	var m struct{ ID, Kind, Phase string }
	_ = json.Unmarshal(text, &m) // an empty id fails the test
	name := strings.Split(r.URL.Path, "/")[1]
	h.tried[m.ID] = append(h.tried[m.ID], name)
	first := h.first != nil && len(h.tried) == 1 && len(h.tried[m.ID]) == 1
	status := h.status
	if !first && status == 200 {
		h.got[m.Kind+" "+m.Phase] = append(h.got[m.Kind+" "+m.Phase], m.ID)
	}
	h.mu.Unlock()
	if first {
		h.first <- name
		<-r.Context().Done()
		return
	}
	w.WriteHeader(status)
}

func (h *theHook) count(what string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.got[what])
}

func (h *theHook) answers(status int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status = status
}

// Of three daemons one tells that a budget is exhausted. It is killed while it does: another
// tells it, under the same id, and that one is killed too. The last tells the end. No address
// is in what they say and keep; a delivery that fails is in status, doctor and metrics.
func TestAlertsOverThreeDaemons(t *testing.T) {
	t.Parallel()
	h := &theHook{got: map[string][]string{}, tried: map[string][]string{}, first: make(chan string, 1), status: 200}
	server := httptest.NewServer(h)
	defer server.Close()
	dir := t.TempDir()
	config := strings.ReplaceAll(alertConfig, "FOLDER", dir)
	daemons := map[string]*serving{}
	for i := range 3 {
		name := fmt.Sprintf("d%d", i)
		d := newServing(t, config, "run", "--listen", "0", "--log-level", "debug")
		d.Env = append(d.Env, "HOOK="+server.URL+"/"+name+"/T0K3N", "PING="+server.URL+"/ping/T0K3N")
		daemons[name] = d
		d.start()
		d.logged(`msg="listening`)
	}
	any := func() *serving {
		for _, d := range daemons {
			return d
		}
		return nil
	}
	run := func(code int, args ...string) string {
		t.Helper()
		return string((&docJob{t: t, dir: any().Dir, env: any().Env}).run(code, append([]string{"quotactl"}, args...)...))
	}
	run(exitDone, "charge", "shop/main", "get", "--units", "100")
	killed := <-h.first
	check.NoError(t, daemons[killed].Process.Kill(), "kill -9")
	_ = daemons[killed].Wait()
	delete(daemons, killed)
	becomes(t, "another daemon told it", func() bool { return h.count("exhausted begin") == 1 })
	h.mu.Lock()
	id := h.got["exhausted begin"][0]
	sent := h.tried[id]
	h.mu.Unlock()
	if len(sent) != 2 || sent[0] != killed || sent[1] == killed {
		t.Errorf("%s was sent by %v, the first of which was killed", id, sent)
	}
	becomes(t, "it was written down", func() bool { return strings.Contains(run(exitDone, "status", "--json"), `"waiting": 0`) })
	check.NoError(t, daemons[sent[1]].Process.Kill(), "kill -9")
	_ = daemons[sent[1]].Wait()
	delete(daemons, sent[1])

	h.answers(500)
	run(exitDone, "reset", "shop/main", "--yes")
	becomes(t, "the failed delivery is shown", func() bool {
		return strings.Contains(run(exitDone, "status"), "alert team: a message could not be delivered since ")
	})
	check.Contains(t, run(exitDone, "doctor"), "alert team: a message could not be delivered since", "doctor")
	check.Contains(t, any().answers(http.StatusOK, http.MethodGet, "/metrics", ""), `quotactl_alert_deliveries_total{alert="team",result="failed"} `, "metrics")
	h.answers(200)
	becomes(t, "the end was sent", func() bool { return h.count("exhausted end") == 1 })
	check.Equal(t, h.count("exhausted begin"), 1, "begins")

	run(exitDone, "trigger", "fails")
	becomes(t, "the failure was sent", func() bool { return h.count("failed begin") == 1 })
	becomes(t, "it was pinged", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.pings) == 2
	})
	check.Equal(t, h.pings[0], "/ping/T0K3N/start ", "the first ping")
	if !strings.HasPrefix(h.pings[1], "/ping/T0K3N/fail ") || !strings.Contains(h.pings[1], "the last line of [secret]") {
		t.Errorf("the second ping is %s", h.pings[1])
	}
	last := any()
	last.signal(syscall.SIGTERM)
	last.exits(exitDone)
	for _, root := range []string{dir, last.Dir} {
		must.Do(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			if text := must.Get(os.ReadFile(path))(t); strings.Contains(string(text), "T0K3N") || strings.Contains(string(text), server.URL) {
				t.Errorf("the address is in %s", path)
			}
			return nil
		}))
	}
}

const forecastConfig = `
[upstream.shop.costs]
"get" = 1
[upstream.shop.limit.daily]
limit  = 100
window = "24h"
[upstream.shop.credential.main]
[job.hourly]
budget   = "shop/main"
schedule = "30 * * * *"
needs    = { get = 60 }
command  = ["true"]
[alert.team]
url_env = "HOOK"
on      = ["forecast"]
`

// The plan alerts people of a pass that will not start in hours.
func TestForecastIsTold(t *testing.T) {
	t.Parallel()
	h := &theHook{got: map[string][]string{}, tried: map[string][]string{}, status: 200}
	server := httptest.NewServer(h)
	defer server.Close()
	d := newServing(t, forecastConfig, "run", "--listen", "0")
	d.Env = append(d.Env, "HOOK="+server.URL+"/d0")
	d.start()
	becomes(t, "the forecast was sent", func() bool { return h.count("forecast begin") == 1 })
	d.signal(syscall.SIGTERM)
	d.exits(exitDone)
}

// A daemon tells of a store that is away when it starts, before there is anything that it could
// write down; what could not be delivered by then it delivers when the store answers.
func TestADaemonTellsThatItsStoreWasAway(t *testing.T) {
	t.Parallel()
	h := &theHook{got: map[string][]string{}, tried: map[string][]string{}, status: 500}
	hook := httptest.NewServer(h)
	defer hook.Close()
	store := redistest.Start(t)
	store.Kill()
	config := strings.ReplaceAll(alertConfig, "sqlite:FOLDER/quotactl.db", store.URL(0))
	d := newServing(t, strings.ReplaceAll(config, `"failed"]`, `"outage"]`), "run", "--listen", "0")
	d.Env = append(d.Env, "HOOK="+hook.URL+"/d/T0K3N", "PING="+hook.URL+"/ping/T0K3N")
	d.start()
	d.logged(`level=ERROR msg="the store is out of reach`)
	becomes(t, "it tried to tell of the outage", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.tried) == 1
	})
	must.Equal(t, store.Start(), true, "the server starts")
	d.logged(`msg="the store is within reach again"`)
	h.answers(200)
	becomes(t, "the end was sent", func() bool { return h.count("outage end") == 1 })
	d.signal(syscall.SIGTERM)
	d.exits(exitDone)
	check.Equal(t, h.count("outage begin"), 1, "begins")
}
