// Package openai_test meters github.com/openai/openai-go.
package openai_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/quotactl/quotactl/testdata/clients/upstream"
)

const host = "api.openai.com"

// menu is how often a request meets a fault: one in so many, 0 for never.
type menu struct {
	limited     int
	unavailable int
	drop        int // the connection is lost after the request has come
}

// server answers as OpenAI's API does. It counts each request as it arrives: the
// tokens that it asks for at most, and where it succeeds those that it took.
type server struct {
	upstream.Tally
	faults *upstream.Faults // also of dials
	menu   menu
	// scripted are the answers to the next requests, in place of any other; nil:
	// none.
	scripted chan func(http.ResponseWriter, *http.Request)

	spent upstream.Fixture // the money

	mu       sync.Mutex // guards all below
	requests bucket
	tokens   bucket
	over     int // requests that found either overdrawn
}

// bucket drains within a minute.
type bucket struct {
	limit float64
	used  float64
	most  float64
	at    time.Time
}

func newServer(t testing.TB, menu menu, faults *upstream.Faults) *server {
	return &server{
		faults: faults, menu: menu, scripted: make(chan func(http.ResponseWriter, *http.Request), 10),
		spent: upstream.NewFixture(t, "openai-quota.http"), requests: bucket{limit: 60}, tokens: bucket{limit: 150_000},
	}
}

// add takes from the bucket; less than 0 gives back.
func (b *bucket) add(n float64) {
	now := time.Now()
	b.used = max(0, b.used-b.limit*now.Sub(b.at).Minutes())
	b.used, b.at = max(0, b.used+n), now
	b.most = max(b.most, b.used)
}

// tell sets the headers.
func (b *bucket) tell(h http.Header, name string) {
	h.Set("X-Ratelimit-Limit-"+name, strconv.Itoa(int(b.limit)))
	h.Set("X-Ratelimit-Remaining-"+name, strconv.Itoa(int(math.Ceil(b.limit-b.used))))
	h.Set("X-Ratelimit-Reset-"+name, time.Duration(b.used/b.limit*float64(time.Minute)).Round(time.Millisecond).String())
}

// asked is what the requests say.
type asked struct {
	Stream    bool  `json:"stream"`
	Chat      int64 `json:"max_completion_tokens"`
	Responses int64 `json:"max_output_tokens"`
	Options   struct {
		Usage bool `json:"include_usage"`
	} `json:"stream_options"`
}

var operations = map[string]string{
	"POST /v1/chat/completions": "chat.completions",
	"POST /v1/responses":        "responses",
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	operation := operations[r.Method+" "+r.URL.Path]
	var body asked
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || operation == "" || r.Host != host || r.Header.Get("Authorization") != "Bearer "+key {
		http.Error(w, "not of this API: "+r.Method+" "+r.Host+r.URL.Path, http.StatusBadRequest)
		return
	}
	_, _ = io.Copy(io.Discard, r.Body)
	tokens := max(body.Chat, body.Responses)
	fault := s.fault()
	s.count(w.Header(), operation, tokens, fault == nil)
	switch {
	case fault != nil:
		fault(w, r)
	case operation == "responses":
		respond(w, r, body, took(tokens))
	default:
		complete(w, r, body, took(tokens))
	}
}

// count takes a request from both limits, gives back what it did not take, and
// tells what remains.
func (s *server) count(h http.Header, operation string, tokens int64, succeeds bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests.add(1)
	s.tokens.add(float64(tokens))
	if s.requests.used > s.requests.limit || s.tokens.used > s.tokens.limit {
		s.over++
	}
	if succeeds {
		s.tokens.add(float64(took(tokens) - tokens))
		tokens = took(tokens)
	}
	s.Add(operation, 1, tokens)
	s.requests.tell(h, "Requests")
	s.tokens.tell(h, "Tokens")
}

// took is what a request takes that asks for so many tokens at most.
func took(tokens int64) int64 { return tokens/10 + 7 }

// fault is what is answered in place of what was asked for; nil: nothing.
func (s *server) fault() func(http.ResponseWriter, *http.Request) {
	select {
	case answer := <-s.scripted:
		return answer
	default:
	}
	switch {
	case s.faults.OneIn(s.menu.limited):
		return limited("tokens per min (TPM)", "1")
	case s.faults.OneIn(s.menu.unavailable):
		return unavailable
	case s.faults.OneIn(s.menu.drop):
		return dropped
	}
	return nil
}

// limited refuses for so many seconds.
func limited(by, after string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", after)
		upstream.JSON(w, r, http.StatusTooManyRequests, map[string]any{"error": map[string]any{
			"message": "Rate limit reached for gpt-5 in organization org-1 on " + by + ": Limit 60, Used 60, Requested 1.",
			"type":    "requests", "param": nil, "code": "rate_limit_exceeded",
		}})
	}
}

func unavailable(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Retry-After-Ms", "1") // the client's own pause is long
	upstream.JSON(w, r, http.StatusServiceUnavailable, map[string]any{"error": map[string]any{
		"message": "The engine is currently overloaded, please try again later.", "type": "server_error", "param": nil, "code": nil,
	}})
}

func dropped(http.ResponseWriter, *http.Request) { upstream.Drop() }

// complete answers a chat, in one or in parts.
func complete(w http.ResponseWriter, r *http.Request, body asked, total int64) {
	usage := map[string]any{"prompt_tokens": 7, "completion_tokens": total - 7, "total_tokens": total}
	if !body.Stream {
		upstream.JSON(w, r, http.StatusOK, map[string]any{
			"id": "chatcmpl-1", "object": "chat.completion", "model": "gpt-5", "usage": usage,
			"choices": []any{map[string]any{"index": 0, "finish_reason": "stop", "message": map[string]any{"role": "assistant", "content": "Hello there"}}},
		})
		return
	}
	e := newEvents(w)
	for _, word := range []string{"Hello", " there"} {
		e.send("", map[string]any{
			"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "gpt-5", "usage": nil,
			"choices": []any{map[string]any{"index": 0, "delta": map[string]any{"content": word}}},
		})
	}
	if body.Options.Usage {
		e.send("", map[string]any{"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "gpt-5", "usage": usage, "choices": []any{}})
	}
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}

// respond answers a response, in one or in parts.
func respond(w http.ResponseWriter, r *http.Request, body asked, total int64) {
	response := map[string]any{
		"id": "resp_1", "object": "response", "model": "gpt-5", "status": "completed",
		"usage":  map[string]any{"input_tokens": 7, "output_tokens": total - 7, "total_tokens": total},
		"output": []any{map[string]any{"type": "message", "role": "assistant", "content": []any{map[string]any{"type": "output_text", "text": "Hello there", "annotations": []any{}}}}},
	}
	if !body.Stream {
		upstream.JSON(w, r, http.StatusOK, response)
		return
	}
	e := newEvents(w)
	e.send("response.created", map[string]any{"type": "response.created", "response": map[string]any{"id": "resp_1", "usage": nil}})
	for _, word := range []string{"Hello", " there"} {
		e.send("response.output_text.delta", map[string]any{"type": "response.output_text.delta", "delta": word})
	}
	e.send("response.completed", map[string]any{"type": "response.completed", "response": response})
}

// events is a stream of server-sent events.
type events struct{ w http.ResponseWriter }

func newEvents(w http.ResponseWriter) events {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	return events{w}
}

func (e events) send(name string, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // a value of the test's own
	}
	if name != "" {
		_, _ = fmt.Fprintf(e.w, "event: %s\n", name)
	}
	_, _ = fmt.Fprintf(e.w, "data: %s\n\n", text)
	_ = http.NewResponseController(e.w).Flush()
}
