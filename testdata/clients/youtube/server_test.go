// Package youtube_test meters google.golang.org/api/youtube/v3.
package youtube_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/quotactl/quotactl/testdata/clients/upstream"
)

const host = "youtube.googleapis.com"

// menu is how often a request meets a fault: one in so many, 0 for never.
type menu struct {
	spent, burst int // refusals: of the day's quota, of the minute's
	unavailable  int
	drop         int // the connection is lost after the request has come
	dropGET      int // which net/http sends again by itself
}

// server answers as the YouTube Data API does. It counts each request as it
// arrives, those that it answers with a fault too, but no part of an upload.
type server struct {
	upstream.Tally
	faults *upstream.Faults // also of dials
	menu   menu
	// scripted are the answers to the next requests that count, in place of any
	// other; nil: none.
	scripted chan func(http.ResponseWriter, *http.Request)

	pool, search upstream.Fixture // spent

	mu      sync.Mutex // guards all below
	days    map[string]upstream.Row
	uploads map[string]*bytes.Buffer
	parts   int
	// failParts is how many of the next are answered with 503.
	failParts int
}

func newServer(t testing.TB, menu menu, faults *upstream.Faults) *server {
	return &server{
		faults: faults, menu: menu, scripted: make(chan func(http.ResponseWriter, *http.Request), 10),
		pool: upstream.NewFixture(t, "youtube-pool.http"), search: upstream.NewFixture(t, "youtube-search.http"),
		days: map[string]upstream.Row{}, uploads: map[string]*bytes.Buffer{},
	}
}

// known are the requests it answers: of each the operation, its price as the
// quota calculator tells it, its bucket, and how much that has a day.
var known = map[string]struct {
	operation string
	units     int64
	bucket    string
	quota     int64
	answer    func(*server, http.ResponseWriter, *http.Request)
}{
	"GET /youtube/v3/playlistItems":  {"playlistItems.list", 1, "pool", 10_000, (*server).page},
	"POST /youtube/v3/playlistItems": {"playlistItems.insert", 50, "pool", 10_000, (*server).inserted},
	"GET /youtube/v3/search":         {"search.list", 1, "search", 100, (*server).page},
	"POST /upload/youtube/v3/videos": {"videos.insert", 1, "uploads", 100, (*server).start},
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	one, ok := known[r.Method+" "+r.URL.Path]
	if !ok || r.Host != host || r.Header.Get("X-Goog-Api-Key") != key {
		http.Error(w, "not of this API: "+r.Method+" "+r.Host+r.URL.Path, http.StatusBadRequest)
		return
	}
	if r.URL.Query().Has("upload_id") {
		s.part(w, r)
		return
	}
	s.Add(one.operation, 1, one.units)
	over := s.spend(one.bucket, one.units) > one.quota
	select {
	case answer := <-s.scripted:
		answer(w, r)
		return
	default:
	}
	drop := s.menu.drop
	if r.Method == http.MethodGet {
		drop = s.menu.dropGET
	}
	switch {
	case over && one.bucket != "search", s.faults.OneIn(s.menu.spent):
		s.pool.Answer(w, r)
	case over, one.bucket == "search" && s.faults.OneIn(s.menu.spent):
		s.search.Answer(w, r)
	case s.faults.OneIn(s.menu.burst):
		burst(w, r)
	case s.faults.OneIn(s.menu.unavailable):
		unavailable(w, r)
	case s.faults.OneIn(drop):
		upstream.Drop()
	default:
		one.answer(s, w, r)
	}
}

// spend counts towards a bucket's day.
func (s *server) spend(bucket string, units int64) (spent int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	day := bucket + " " + time.Now().In(pacific).Format(time.DateOnly)
	row := s.days[day]
	row.Calls++
	row.Units += units
	s.days[day] = row
	return row.Units
}

// most is what arrived of a bucket on the fullest of days, and on how many days.
func (s *server) most(bucket string) (units int64, days int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for day, row := range s.days {
		if len(day) == len(bucket+" 2006-01-02") && day[:len(bucket)] == bucket {
			units, days = max(units, row.Units), days+1
		}
	}
	return units, days
}

func burst(w http.ResponseWriter, r *http.Request) {
	fail(w, r, http.StatusTooManyRequests, "global", "rateLimitExceeded", "Quota exceeded for quota metric 'Queries' and limit 'Queries per minute'.")
}

func unavailable(w http.ResponseWriter, r *http.Request) {
	fail(w, r, http.StatusServiceUnavailable, "global", "backendError", "The service is currently unavailable.")
}

func fail(w http.ResponseWriter, r *http.Request, status int, domain, reason, message string) {
	upstream.JSON(w, r, status, map[string]any{"error": map[string]any{
		"code": status, "message": message,
		"errors": []any{map[string]any{"domain": domain, "reason": reason, "message": message}},
	}})
}

// pages is how many a list has.
const pages = 4

// page is a page of a list.
func (s *server) page(w http.ResponseWriter, r *http.Request) {
	n, _ := strconv.Atoi(r.URL.Query().Get("pageToken"))
	body := map[string]any{"items": []any{map[string]any{"etag": fmt.Sprint("page ", n)}}}
	if n+1 < pages {
		body["nextPageToken"] = strconv.Itoa(n + 1)
	}
	upstream.JSON(w, r, http.StatusOK, body)
}

func (s *server) inserted(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	upstream.JSON(w, r, http.StatusOK, map[string]any{"id": "item"})
}

// start begins a resumable upload.
func (s *server) start(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("uploadType") != "resumable" {
		fail(w, r, http.StatusBadRequest, "global", "badRequest", "not resumable")
		return
	}
	_, _ = io.Copy(io.Discard, r.Body)
	s.mu.Lock()
	id := fmt.Sprint("AEnB2U", len(s.uploads))
	s.uploads[id] = &bytes.Buffer{}
	s.mu.Unlock()
	w.Header().Set("Location", "https://"+host+"/upload/youtube/v3/videos?uploadType=resumable&upload_id="+id)
	w.WriteHeader(http.StatusOK)
}

// part takes a part of an upload.
func (s *server) part(w http.ResponseWriter, r *http.Request) {
	span := r.Header.Get("Content-Range")
	var first, last int
	var total string
	_, err := fmt.Sscanf(span, "bytes %d-%d/%s", &first, &last, &total)
	if _, end := fmt.Sscanf(span, "bytes */%d", &first); end == nil { // nothing is left to be sent
		last, total, err = first-1, strconv.Itoa(first), nil
	}
	text, readErr := io.ReadAll(r.Body)
	fault := s.faults.OneIn(2 * s.menu.unavailable)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parts++
	whole := s.uploads[r.URL.Query().Get("upload_id")]
	switch {
	case err != nil || readErr != nil || whole == nil || len(text) != last-first+1 || first > whole.Len(), total != "*" && total != strconv.Itoa(last+1):
		fail(w, r, http.StatusBadRequest, "global", "badRequest", "no such part")
	case fault, s.failParts > 0 && first > 0:
		s.failParts = max(0, s.failParts-1)
		unavailable(w, r)
	default:
		whole.Truncate(first)
		whole.Write(text)
		if total == "*" { // 308, as this client asks for it
			w.Header().Set("X-Http-Status-Code-Override", "308")
			w.Header().Set("Range", "bytes=0-"+strconv.Itoa(last))
			w.WriteHeader(http.StatusOK)
			return
		}
		upstream.JSON(w, r, http.StatusOK, map[string]any{"id": "video"})
	}
}
