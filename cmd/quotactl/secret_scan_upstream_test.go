package main

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
)

// tellTale is an upstream that tells the secret it was sent to whoever asks.
type tellTale struct {
	plain, secure *httptest.Server
	unasked       chan struct{} // closed at the end
	hung          chan struct{} // has one for each request that is not answered

	mu   sync.Mutex
	seen map[string]int // requests by their secret
}

func newTellTale(t *testing.T) *tellTale {
	t.Helper()
	u := &tellTale{unasked: make(chan struct{}), hung: make(chan struct{}, 1000), seen: map[string]int{}}
	u.plain, u.secure = httptest.NewServer(u), httptest.NewUnstartedServer(u)
	u.secure.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that do not trust it are what it is for
	u.secure.StartTLS()
	t.Cleanup(func() {
		close(u.unasked)
		u.plain.Close()
		u.secure.Close()
	})
	return u
}

// ways are how an upstream may write a secret into an answer.
var ways = map[string]func(secret string) string{
	"plain":   func(s string) string { return s },
	"query":   url.QueryEscape,
	"path":    url.PathEscape,
	"twice":   func(s string) string { return url.QueryEscape(url.QueryEscape(s)) },
	"json":    func(s string) string { b, _ := json.Marshal(s); return string(b) },
	"html":    html.EscapeString,
	"hex":     func(s string) string { return hex.EncodeToString([]byte(s)) },
	"hexcaps": func(s string) string { return strings.ToUpper(hex.EncodeToString([]byte(s))) },
	"base64":  func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
	"basic":   func(s string) string { return base64.StdEncoding.EncodeToString([]byte("user:" + s)) },
	"basic1":  func(s string) string { return base64.URLEncoding.EncodeToString([]byte("me:" + s + ":x")) },
	"wide":    wide,
}

// troubles are the other ways to tell it: the last part of a path that is asked
// for chooses. hang never answers.
var troubles = []string{"ok", "mirror", "redirect", "text", "half", "header", "malformed", "cut", "long", "token", "object"}

// kinds are all paths that answer.
func kinds() []string { return slices.Concat(troubles, slices.Sorted(maps.Keys(ways))) }

func (u *tellTale) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secret := r.URL.Query().Get("key")
	if secret == "" {
		secret = strings.TrimPrefix(r.Header.Get("X-Api-Key"), "Token ")
	}
	u.mu.Lock()
	u.seen[secret]++
	u.mu.Unlock()
	kind := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	if way := ways[kind]; way != nil {
		body := "the key " + way(secret) + " is over its quota"
		if kind != "html" && kind != "wide" {
			text, _ := json.Marshal(map[string]any{"error": map[string]any{"code": 403, "message": body}})
			body = string(text)
		}
		w.WriteHeader([]int{http.StatusForbidden, http.StatusInternalServerError}[len(kind)%2])
		_, _ = w.Write([]byte(body))
		return
	}
	u.trouble(w, r, kind, secret)
}

func (u *tellTale) trouble(w http.ResponseWriter, r *http.Request, kind, secret string) {
	quoted, _ := json.Marshal(secret)
	switch kind {
	case "ok":
		_, _ = w.Write([]byte(`{"items":[1,2]}`))
	case "mirror":
		_, _ = fmt.Fprintf(w, `{"url":%s}`, quoted)
	case "redirect":
		http.Redirect(w, r, "/ok?key="+url.QueryEscape(secret), http.StatusFound)
	case "text":
		_, _ = fmt.Fprintf(w, "%s is no JSON", secret)
	case "half":
		_, _ = fmt.Fprintf(w, `{"url":%s`, quoted)
	case "header":
		w.Header().Set("X-Key", secret)
		w.Header().Set("Www-Authenticate", `Key "`+secret+`"`)
		w.WriteHeader(http.StatusUnauthorized)
	case "malformed":
		hijacked(w, "HTTP/1.1 "+secret+" "+secret+"\r\n"+secret+"\r\n\r\n")
	case "cut": // in the middle of the secret
		hijacked(w, "HTTP/1.1 403 Forbidden\r\nContent-Length: 1000\r\n\r\nthe key is "+secret[:len(secret)-6])
	case "long":
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(strings.Repeat(" ", 64<<10-len(secret)/2) + secret))
	case "token":
		_, _ = fmt.Fprintf(w, `{"next":%s}`, quoted)
	case "object":
		_, _ = fmt.Fprintf(w, `{"next":{%s:%s}}`, quoted, quoted)
	case "hang":
		u.hung <- struct{}{}
		select {
		case <-u.unasked:
		case <-r.Context().Done():
		}
	default:
		http.Error(w, "no such kind", http.StatusTeapot)
	}
}

// hijacked answers with bytes that need not be HTTP.
func hijacked(w http.ResponseWriter, answer string) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_, _ = conn.Write([]byte(answer))
	_ = conn.Close()
}

// asked is how often a secret was sent.
func (u *tellTale) asked(secret string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.seen[secret]
}
