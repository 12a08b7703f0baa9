package door

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/quotactl/quotactl/internal/serve"
)

// The bounds of sessions.
const (
	idleLife     = 12 * time.Hour
	longestLife  = 7 * 24 * time.Hour
	mostSessions = 1000
)

// session is somebody who has signed in. All but seen and said never change.
type session struct {
	key   [sha256.Size]byte // the hash of the id
	may   serve.Right
	csrf  string
	made  time.Time
	ended context.Context
	end   context.CancelFunc

	seen time.Time // guarded by sessions.mu
	said string    // likewise
}

// over is when the session ends unless it is used.
func (s *session) over() time.Time {
	idle, last := s.seen.Add(idleLife), s.made.Add(longestLife)
	if idle.Before(last) {
		return idle
	}
	return last
}

// own reports, in constant time, whether a form is the session's.
func (s *session) own(csrf string) bool {
	return subtle.ConstantTimeCompare([]byte(csrf), []byte(s.csrf)) == 1
}

// sessions are in memory, under the hash of their id: who reads the memory cannot sign in.
type sessions struct {
	now func() time.Time

	mu  sync.Mutex // guards all below
	all map[[sha256.Size]byte]*session
}

func newSessions(now func() time.Time) *sessions {
	return &sessions{now: now, all: map[[sha256.Size]byte]*session{}}
}

// random is a string of 256 random bits.
func random() string {
	var bits [32]byte
	_, _ = rand.Read(bits[:]) // it never fails
	return base64.RawURLEncoding.EncodeToString(bits[:])
}

// begin makes a session. If there are too many, the oldest ends.
func (l *sessions) begin(may serve.Right) (id string) {
	id = random()
	now := l.now()
	s := &session{key: sha256.Sum256([]byte(id)), may: may, csrf: random(), made: now, seen: now}
	s.ended, s.end = context.WithCancel(context.Background())
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweep(now)
	l.all[s.key] = s
	return id
}

// sweep makes room for one more session.
func (l *sessions) sweep(now time.Time) {
	var oldest *session
	for _, s := range l.all {
		if !now.Before(s.over()) {
			l.drop(s)
		} else if oldest == nil || s.made.Before(oldest.made) {
			oldest = s
		}
	}
	if len(l.all) >= mostSessions {
		l.drop(oldest)
	}
}

func (l *sessions) drop(s *session) {
	delete(l.all, s.key)
	s.end()
}

// find is the session of an id; nil if there is none. With use, it is not idle.
func (l *sessions) find(id string, use bool) *session {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.all[sha256.Sum256([]byte(id))]
	switch {
	case s == nil:
		return nil
	case !now.Before(s.over()):
		l.drop(s)
		return nil
	case use:
		s.seen = now
	}
	return s
}

// within is ctx until the session ends, if it is not used any more. Event streams live in it.
func (l *sessions) within(ctx context.Context, s *session) (context.Context, func()) {
	l.mu.Lock()
	left := s.over().Sub(l.now())
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, left)
	stop := context.AfterFunc(s.ended, cancel)
	return ctx, func() { stop(); cancel() }
}

// finish ends a session.
func (l *sessions) finish(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(s)
}

// say keeps what an action did, for the next page.
func (l *sessions) say(s *session, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.said = text
}

// takeSaid returns what say has kept, once.
func (l *sessions) takeSaid(s *session) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	said := s.said
	s.said = ""
	return said
}

// cookieName is the name of the session's cookie. Browsers send cookies to all ports of a host,
// so without TLS the name has the port by which the browser knows the daemon.
func cookieName(r *http.Request) string {
	if r.TLS != nil {
		return "__Host-quotactl"
	}
	name := "quotactl"
	if _, port, err := net.SplitHostPort(r.Host); err == nil && port != "" && strings.Trim(port, "0123456789") == "" {
		name += "-" + port
	}
	return name
}

// setCookie has the browser keep a session's id; an empty one has it forget its session. Before a
// Unix socket another server may serve TLS, which Origin then shows.
func setCookie(w http.ResponseWriter, r *http.Request, id string) {
	cookie := &http.Cookie{Name: cookieName(r), Value: id, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode}
	cookie.Secure = r.TLS != nil || strings.HasPrefix(r.Header.Get("Origin"), "https://")
	if id == "" {
		cookie.MaxAge = -1
	}
	http.SetCookie(w, cookie)
}

// sessionOf is the session of a request; nil if there is none. Of several cookies, which other
// servers of this host may have set, none is believed. What a page's script asks for is no
// use of a session: the page may be on a screen that nobody looks at.
func (d *Door) sessionOf(r *http.Request) *session {
	sent := r.CookiesNamed(cookieName(r))
	if len(sent) != 1 {
		return nil
	}
	return d.sessions.find(sent[0].Value, !reading(r.Method) || showsPage(r))
}
