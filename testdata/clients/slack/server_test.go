// Package slack_test meters github.com/slack-go/slack.
package slack_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quotactl/quotactl/testdata/clients/upstream"
)

// menu is how often a request meets a fault: one in so many, 0 for never.
type menu struct {
	limited     int
	unavailable int
	drop        int // the connection is lost after the request has come
}

// server answers as Slack's Web API does. It counts each request as it arrives,
// those that it answers with a fault too.
type server struct {
	upstream.Tally
	faults *upstream.Faults // also of dials
	menu   menu
	// scripted are the answers to the next requests, in place of any other; nil:
	// none.
	scripted chan func(http.ResponseWriter, *http.Request)

	limited upstream.Fixture

	mu    sync.Mutex // guards all below
	times map[string][]time.Time
	over  int // requests above their method's tier
	most  int // of a minute's
}

func newServer(t testing.TB, menu menu, faults *upstream.Faults) *server {
	return &server{
		faults: faults, menu: menu, scripted: make(chan func(http.ResponseWriter, *http.Request), 10),
		limited: upstream.NewFixture(t, "slack-method.http"), times: map[string][]time.Time{},
	}
}

// tiers are how often a minute each method may be called.
var tiers = map[string]int{"chat.postMessage": 60, "conversations.list": 20, "users.info": 100}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	method, ok := strings.CutPrefix(r.URL.Path, "/api/")
	if tiers[method] == 0 || !ok || r.Host != "slack.com" || r.FormValue("token") != token {
		http.Error(w, "not of this API: "+r.Method+" "+r.Host+r.URL.Path, http.StatusBadRequest)
		return
	}
	s.count(method)
	select {
	case answer := <-s.scripted:
		answer(w, r)
		return
	default:
	}
	switch {
	case s.faults.OneIn(s.menu.limited):
		s.limited.Answer(w, r)
	case s.faults.OneIn(s.menu.unavailable):
		unavailable(w, r)
	case s.faults.OneIn(s.menu.drop):
		upstream.Drop()
	case method == "conversations.list":
		page(w, r)
	case method == "users.info":
		upstream.JSON(w, r, http.StatusOK, map[string]any{"ok": true, "user": map[string]any{"id": "U1"}})
	default:
		upstream.JSON(w, r, http.StatusOK, map[string]any{"ok": true, "channel": "C1", "ts": "1503435956.000247"})
	}
}

// ahead is more than a ledger's clock can run ahead of time here: 1 µs for each of several
// charges at one instant, as the conformance case I6OwnMicrosecond has it.
const ahead = time.Millisecond

// count counts a call, and how many a minute's are.
func (s *server) count(method string) {
	s.Add(method, 1, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	times := append(s.times[method], now)
	for !times[0].After(now.Add(ahead - time.Minute)) {
		times = times[1:]
	}
	s.times[method] = times
	s.most = max(s.most, len(times))
	if len(times) > tiers[method] {
		s.over++
	}
}

func unavailable(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "<html><body>Server Error</body></html>", http.StatusServiceUnavailable)
}

// pages is how many a list has.
const pages = 3

// page is a page of a list.
func page(w http.ResponseWriter, r *http.Request) {
	n, _ := strconv.Atoi(r.FormValue("cursor"))
	next := ""
	if n+1 < pages {
		next = strconv.Itoa(n + 1)
	}
	upstream.JSON(w, r, http.StatusOK, map[string]any{
		"ok": true, "channels": []any{map[string]any{"id": fmt.Sprint("C", n)}},
		"response_metadata": map[string]any{"next_cursor": next},
	})
}
