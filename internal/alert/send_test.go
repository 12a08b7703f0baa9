package alert

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// What goes wrong at a webhook is said, without its address.
func TestWebhooksThatFail(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("s") {
		case "500":
			w.WriteHeader(500)
		case "400":
			http.Error(w, "no such channel: "+r.URL.String(), 400)
		case "301":
			http.Redirect(w, r, "/elsewhere/T0K3N", http.StatusMovedPermanently)
		case "close":
			must.Do(t, must.Get(hijack(w))(t).Close())
		}
	}))
	defer server.Close()
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for address, want := range map[string]string{
		server.URL + "/T0K3N?s=500":     "status 500",
		server.URL + "/T0K3N?s=400":     "status 400",
		server.URL + "/T0K3N?s=301":     "has moved",
		server.URL + "/T0K3N?s=close":   "closed without an answer",
		secure.URL + "/T0K3N":           "certificate cannot be verified",
		gone.URL + "/T0K3N":             "connection refused",
		"https://T0K3N.invalid/T0K3N":   "host was not found",
		"ftp://example.org/T0K3N":       "does not begin with https://",
		"https://exa mple.org/%zzT0K3N": "does not begin with https://",
		"":                              "the environment has no HOOK",
	} {
		s := newSender(func(string) (string, bool) { return address, true }, nil)
		err := s.deliver(t.Context(), config.Alert{Name: "team", URLEnv: "HOOK", As: "json"}, Message{Text: "x"})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "T0K3N") || strings.Contains(err.Error(), "127.0.0.1") {
			t.Errorf("%s: %v, want %s", address, err, want)
		}
	}
	s := newSender(func(string) (string, bool) { return server.URL, true }, nil)
	check.NoError(t, s.deliver(t.Context(), config.Alert{URLEnv: "HOOK", As: "slack"}, Message{Text: "x"}), "a good one")
}

func hijack(w http.ResponseWriter) (io.Closer, error) {
	conn, _, err := http.NewResponseController(w).Hijack()
	return conn, err
}

func TestForms(t *testing.T) {
	m := newMessage("team", subject{Kind: "used 80%", Budget: "shop/main", Limit: "daily"}, turn{Begin, 1_700_000_000_000_001, 7, `80 of <100> & "more"`})
	for as, want := range map[string]string{
		"json":         `{"id":"` + m.ID + `","kind":"used 80%","phase":"begin","budget":"shop/main","job":null,"limit":"daily","at":"2023-11-14T22:13:20.000001Z","text":"80 of <100> & \"more\""}`,
		"slack":        `{"text":"quotactl: used 80% shop/main daily\n80 of &lt;100&gt; &amp; \"more\""}`,
		"discord":      `{"allowed_mentions":{"parse":[]},"content":"quotactl: used 80% shop/main daily\n80 of <100> & \"more\""}`,
		"ntfy":         `80 of <100> & "more"`,
		"healthchecks": `80 of <100> & "more"`,
	} {
		body, _ := m.body(as)
		check.Equal(t, string(body), want, as)
	}
}

// A check of healthchecks.io is down while anything is wrong.
func TestHealthchecks(t *testing.T) {
	h := &hook{}
	s := newSender(func(string) (string, bool) { return "http://hc.example/uuid?x=1", true }, nil)
	s.client.Transport = h
	for _, m := range []Message{{Phase: Begin, Others: 1}, {Phase: End, Others: 1}, {Phase: End}, {Kind: kindTest, Phase: Begin}} {
		must.Do(t, s.deliver(t.Context(), config.Alert{URLEnv: "HOOK", As: "healthchecks"}, m))
	}
	check.EqualSlices(t, h.paths, []string{"/uuid/fail", "/uuid/log", "/uuid", "/uuid/log"}, "paths")
}
