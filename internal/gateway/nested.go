package gateway

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
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
	named, _ := env("HTTPS_PROXY") // a runner may pass on nothing else
	proxy, err := url.Parse(named)
	if err != nil || proxy.User.Username() != proxyUser {
		return outer, false
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+proxy.Host+aboutPath+"?upstream="+url.QueryEscape(upstream), nil)
	if err != nil {
		return outer, false
	}
	req.Header = proxyHeader(proxy.User)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: askTime}).Do(req)
	if err != nil {
		return outer, false
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	return outer, resp.StatusCode == http.StatusOK && json.NewDecoder(resp.Body).Decode(&outer) == nil
}

// Digest stands for a configuration and its store.
func Digest(file, store string) string {
	text, _ := os.ReadFile(file) // it was read a moment ago
	if path, isFile := strings.CutPrefix(store, "sqlite:"); isFile {
		if full, err := filepath.Abs(path); err == nil { // whatever folder the command runs in
			store = "sqlite:" + full
		}
	}
	sum := sha256.Sum256([]byte(store + "\x00" + string(text)))
	return hex.EncodeToString(sum[:])
}

// about answers AskOuter.
func (f *front) about(w http.ResponseWriter, req *http.Request) {
	answer := Outer{Config: f.options.Digest, Job: f.options.Call.Labels.Job}
	if upstream := req.URL.Query().Get("upstream"); upstream != "" && f.options.Observe == nil && f.owners.meters(upstream) {
		told, _ := f.charged.ContainsOrAdd("upstream "+upstream, struct{}{})
		answer.First = !told
	}
	_ = json.NewEncoder(w).Encode(answer) // a program that is gone needs none
}

// mostCharged bounds how many charges are remembered.
const mostCharged = 100_000

// isCharged reports whether the program has charged a request itself, to a budget of its
// upstream, and in the ledger of this meter. That holds for one sending of it.
func (h *handler) isCharged(c *call, req *http.Request) bool {
	said := strings.Fields(req.Header.Get(budgethttp.ChargedHeader))
	if c.upstream == nil || len(said) != 5 || !c.has(said[0]) {
		return false
	}
	proof := budgethttp.Proof(h.token, said[0], said[1], said[2], said[3], req)
	if !hmac.Equal([]byte(proof), []byte(strings.Join(said, " "))) {
		return false
	}
	if known, err := h.meters.of(said[0]); err != nil {
		return false // nor can it be charged here: the answer says so
	} else if known.budget.Spec().Store != said[1] {
		h.options.Say(fmt.Sprintf("the program charges its calls to %s itself, in another ledger or by another address of this one: each call is charged in both; give both the same [store]", said[0]))
		return false
	}
	c.id = said[3]
	again, _ := h.charged.ContainsOrAdd(c.id, struct{}{})
	return !again
}
