package gateway

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget/budgethttp"
)

// aboutPath is asked by a quotactl in the command that a meter runs.
const aboutPath = "/quotactl"

// Outer is the meter that runs this program.
type Outer struct {
	// Config is the digest of its configuration, as [Digest] makes it.
	Config string `json:"config"`
	// Job is the label of its charges.
	Job string `json:"job"`
	// First: it meters the upstream that was asked for, and was not asked for it before.
	First bool `json:"first"`
}

// askTime bounds how long AskOuter waits for a meter on this machine.
const askTime = 2 * time.Second

// AskOuter asks the meter that runs this program, if there is one and it answers, about an
// upstream; empty: about none.
func AskOuter(ctx context.Context, env func(string) (string, bool), upstream string) (outer Outer, found bool) {
	at, _ := env("QUOTACTL_METER")
	named, _ := env("HTTPS_PROXY")
	proxy, err := url.Parse(named)
	if at == "" || err != nil || proxy.Host != at {
		return outer, false
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+aboutPath+"?upstream="+url.QueryEscape(upstream), nil)
	if err != nil {
		return outer, false
	}
	token, _ := proxy.User.Password()
	req.SetBasicAuth(proxyUser, token)
	req.Header.Set("Proxy-Authorization", req.Header.Get("Authorization"))
	req.Header.Del("Authorization")
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return outer, false
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	return outer, resp.StatusCode == http.StatusOK && json.NewDecoder(resp.Body).Decode(&outer) == nil
}

// Digest stands for a configuration and its store.
func Digest(file, store string) string {
	text, _ := os.ReadFile(file) // it was read a moment ago
	sum := sha256.Sum256([]byte(store + "\x00" + string(text)))
	return hex.EncodeToString(sum[:])
}

// about answers AskOuter.
func (f *front) about(w http.ResponseWriter, req *http.Request) {
	answer := Outer{Config: f.options.Digest, Job: f.options.Call.Labels.Job}
	if upstream := req.URL.Query().Get("upstream"); upstream != "" && f.owners.meters(upstream) {
		answer.First = f.charged.add("upstream " + upstream)
	}
	_ = json.NewEncoder(w).Encode(answer) // a program that is gone needs none
}

// mostCharged bounds how many charges are remembered.
const mostCharged = 100_000

// once remembers what was seen; the zero value is ready. It is safe for concurrent use.
type once struct {
	mu   sync.Mutex // guards what follows
	seen map[string]struct{}
}

// add reports whether something was not seen before.
func (o *once) add(what string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, known := o.seen[what]; known || len(o.seen) >= mostCharged {
		return false
	}
	if o.seen == nil {
		o.seen = map[string]struct{}{}
	}
	o.seen[what] = struct{}{}
	return true
}

func (o *once) remove(what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.seen, what)
}

// isCharged reports whether the program has charged a request itself, to a budget of its
// upstream. That holds for one sending of it.
func (h *handler) isCharged(c *call, req *http.Request) bool {
	said := strings.Fields(req.Header.Get(budgethttp.ChargedHeader))
	if c.upstream == nil || len(said) != 4 || !strings.HasPrefix(said[0], c.upstream.Name+"/") {
		return false
	}
	proof := budgethttp.Proof(h.token, said[0], said[1], said[2], req)
	c.id = said[2]
	return hmac.Equal([]byte(proof), []byte(strings.Join(said, " "))) && h.charged.add(c.id)
}

// sendCharged sends a request that the program has charged. If it provably was not sent, the
// program may send it again by the same charge.
func (h *handler) sendCharged(c *call, req *http.Request) (*http.Response, error) {
	connected := false
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected = true }}
	resp, err := h.sender.RoundTrip(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	if err != nil && !connected {
		h.charged.remove(c.id)
	}
	return resp, err
}
