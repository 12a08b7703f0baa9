package draft

import (
	"bufio"
	"flag"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

var update = flag.Bool("update", false, "write what is drafted into testdata")

// Secrets of the runs, one for each place where a request has one.
var secrets = []string{
	"sk_test_4eC39HqLyjWDarjtT1zdp7dc", "ghp_16C7e42F292c6912E7710c838347Ae178B4a", "xoxb-17653672481-19874698323-pdFZKVeTuE8sk7oOcHrzqqgy",
	"AIzaSyDaGmWKa4JsXZHjGw7ISLn3namBGewQe", "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", "correct-horse", "b6907d289e10d714a6e88b30761fae22",
	"123456:ABC-DEF1234ghIkl-zyx57W2v1u123ew11", "AC5ef8732a3c49700934481addd5ce1659", "QUM1ZWY4NzMyYTNjNDk3MDA5OnBhc3N3b3Jk", "AKIAIOSFODNN7EXAMPLE",
}

// The calls of testdata/runs, which are those of five programs, become testdata/runs.toml: no secret
// is in it, and each call is an operation of it.
func TestDraft(t *testing.T) {
	t.Parallel()
	l := NewLog([]string{"STRIPE_KEY=" + secrets[0], "HOOK_TOKEN=" + secrets[5], "HOME=/home/ann", "LANG=C.UTF-8"})
	file := must.Get(os.Open("testdata/runs"))(t)
	requests, err := readRuns(file)
	must.Do(t, err)
	check.Equal(t, len(requests) >= 40, true, len(requests), "requests")
	for _, req := range requests {
		kind := Kind{Preset: req.Header.Get("Preset"), Operation: req.Header.Get("Operation")}
		header := http.Header{"X-Ratelimit-Secret": {secrets[0]}, "Retry-After": {"Tue, 01 Dec 2026 00:00:00 GMT"}}
		if limit := req.Header.Get("Limit"); limit != "" {
			header.Set("X-RateLimit-Limit", limit)
		}
		if limit := req.Header.Get("Policy"); limit != "" {
			header.Set("RateLimit-Policy", limit)
		}
		for _, name := range []string{"Preset", "Operation", "Limit", "Policy"} {
			req.Header.Del(name)
		}
		scheme := "https"
		if strings.Contains(req.Host, ":") {
			scheme = "http"
		}
		l.Call(scheme, req.Host, kind, req)(200, header)
	}
	text := string(must.Get(l.Config())(t))
	if *update {
		must.Do(t, os.WriteFile("testdata/runs.toml", []byte(text), 0o600))
	}
	check.Equal(t, text, string(must.Get(os.ReadFile("testdata/runs.toml"))(t)), "the draft; -update writes it")
	for _, h := range l.Hosts() {
		for _, kind := range h.Kinds() {
			text += kind.Method + " " + kind.Path + " " + strings.Join(h.Variables, " ") + "\n"
		}
		for _, place := range h.Credentials() {
			text += place.String() + "\n"
		}
		for name, value := range h.Limits {
			text += name + value + "\n"
		}
	}
	for _, secret := range secrets {
		check.Equal(t, strings.Contains(text, secret), false, "the draft has", secret)
	}
	cfg := must.Get(config.ParseText("draft", string(must.Get(l.Config())(t))))(t)
	must.Do(t, cfg.Err())
	routes := budgethttp.NewRoutes()
	for _, u := range cfg.Upstreams {
		for operation, cost := range u.Costs {
			for _, pattern := range cost.Match {
				must.Get(routes.Add(pattern, operation))(t)
			}
		}
	}
	for _, req := range requests {
		if _, known := routes.Operation(req); !known && req.Host != "www.googleapis.com" { // whose preset lacks one
			t.Errorf("%s %s%s is no operation of the draft", req.Method, req.Host, req.URL.Path)
		}
	}
}

// readRuns reads requests: a line each, with headers as words.
func readRuns(file *os.File) (list []*http.Request, err error) {
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		words := strings.Split(scanner.Text(), " | ")
		method, address, isRequest := strings.Cut(words[0], " ")
		if !isRequest || !strings.HasPrefix(address, "http") {
			continue
		}
		req, err := http.NewRequest(method, address, http.NoBody)
		if err != nil {
			return nil, err
		}
		for _, header := range words[1:] {
			name, value, _ := strings.Cut(header, ": ")
			req.Header.Set(name, value)
		}
		list = append(list, req)
	}
	return list, scanner.Err()
}

// A program that calls ever new paths takes no more memory, and its draft is one that check accepts.
func TestDraftIsBounded(t *testing.T) {
	t.Parallel()
	l := NewLog(nil)
	for i := range 3 * most {
		word := strings.Map(func(r rune) rune { return 'a' + r - '0' }, strconv.Itoa(i))
		req := must.Get(http.NewRequest(http.MethodGet, "https://api.example.com/"+word, http.NoBody))(t)
		l.Call("https", "api.example.com", Kind{}, req)(0, nil)
	}
	h := l.Hosts()[0]
	check.Equal(t, len(h.Rows), most+1, "kinds")
	check.Equal(t, h.Rows[Kind{Path: "…"}].Calls, 2*most, "calls of other kinds")
	must.Do(t, must.Get(config.ParseText("draft", string(must.Get(l.Config())(t))))(t).Err())
}

// Patterns that would conflict, and methods and hosts that a pattern cannot have, spoil no draft.
func TestDraftOfOddCalls(t *testing.T) {
	t.Parallel()
	l := NewLog(nil)
	for _, call := range [][2]string{
		{"GET", "/v1/7/x"}, {"GET", "/v1/a/8"}, {"HEAD", "/v1/7/x"}, {"patch", "/v1/7/x"}, {"P!", "/v1/b"}, {"GET", "/"}, {"GET", "/v1/"},
		{"OPTIONS", "/*"}, {"GET", "/{x}/%7By%7D"}, {"GET", "/$metadata"}, {"GET", "/a/{$}"}, {"GET", "/1/2/3/4"}, {"GET", "/" + strings.Repeat("long-word-", 30)},
	} {
		req := &http.Request{Method: call[0], URL: must.Get(http.NewRequest("", "https://x"+call[1], http.NoBody))(t).URL}
		l.Call("https", "api.example.com:8443", Kind{}, req)(0, nil)
		l.Call("http", `127.0.0.1:8080`, Kind{}, req)(0, nil)
		l.Call("https", "a\"\nb.example.com", Kind{}, req)(0, nil)
		l.Call("https", "-", Kind{}, req)(0, nil)
	}
	text := string(must.Get(l.Config())(t))
	cfg := must.Get(config.ParseText("draft", text))(t)
	check.NoError(t, cfg.Err(), text)
	check.Equal(t, len(cfg.Upstreams), 2, "upstreams")
	check.Contains(t, text, "also seen, but no pattern beside these: GET api.example.com/v1/{id}/x")
	check.Contains(t, text, `base_url = "http://127.0.0.1:8080"`)
}

// Without a call there is nothing to draft, nor for one that asks for a token.
func TestDraftOfNothing(t *testing.T) {
	t.Parallel()
	l := NewLog(nil)
	check.Equal(t, len(must.Get(l.Config())(t)), 0)
	l.Call("https", "auth.example.com", Kind{Token: true}, must.Get(http.NewRequest("POST", "https://auth.example.com/oauth/token", http.NoBody))(t))(0, nil)
	check.Equal(t, len(must.Get(l.Config())(t)), 0)
}
