package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
)

// vendors serves what vendors' own clients call, as far as these need it.
func (f *apis) vendors() {
	f.youtube()
	f.github()
	f.models()
	f.priced("GET api.stripe.invalid/v1/customers", "stripe", "list", 1, func(w http.ResponseWriter, r *http.Request) {
		first := r.FormValue("starting_after") == ""
		id := map[bool]string{true: "cus_1", false: "cus_2"}[first]
		answerJSON(w, 200, map[string]any{"object": "list", "url": "/v1/customers", "has_more": first, "data": []any{map[string]any{"id": id, "object": "customer"}}})
	})
	f.priced("POST api.stripe.invalid/v1/customers", "stripe", "create", 5, func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, 200, map[string]any{"id": "cus_3", "object": "customer"})
	})
	f.priced("POST slack.com/api/conversations.list", "slack", "list", 3, func(w http.ResponseWriter, r *http.Request) {
		next := ""
		if r.FormValue("cursor") == "" {
			next = "second"
		}
		answerJSON(w, 200, map[string]any{"ok": true, "channels": []any{map[string]any{"id": "C1"}}, "response_metadata": map[string]any{"next_cursor": next}})
	})
	f.priced("POST dynamodb.us-east-1.amazonaws.com/{$}", "aws", "call", 2, func(w http.ResponseWriter, r *http.Request) {
		if !isSigned(r) {
			answerJSON(w, http.StatusBadRequest, map[string]string{"__type": "InvalidSignatureException", "message": "the signature does not fit"})
			return
		}
		answer := map[string]any{"TableNames": []string{"one"}}
		if body, _ := io.ReadAll(r.Body); !strings.Contains(string(body), "ExclusiveStartTableName") {
			answer["LastEvaluatedTableName"] = "one"
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		answerJSON(w, 200, answer)
	})
}

// youtube also serves another path of www.googleapis.com, and the tokens of Google's accounts.
func (f *apis) youtube() {
	list := func(w http.ResponseWriter, r *http.Request) {
		answer := map[string]any{"items": []any{map[string]any{"id": "v1"}, map[string]any{"id": "v2"}}}
		if next := following(r, "pageToken"); next != "" {
			answer["nextPageToken"] = next
		}
		answerJSON(w, 200, answer)
	}
	for _, host := range []string{"www.googleapis.com", "youtube.googleapis.com"} {
		f.priced("GET "+host+"/youtube/v3/search", "youtube", "search", 100, list)
		f.priced("GET "+host+"/youtube/v3/videos", "youtube", "videos", 1, list)
		f.resumable("youtube", "insert", 200, host+"/upload/youtube/v3/videos")
	}
	f.HandleFunc("GET www.googleapis.com/drive/v3/about", func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, 200, map[string]any{"kind": "drive#about"})
	})
	f.HandleFunc("POST oauth2.googleapis.com/token", func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, 200, map[string]any{"access_token": "ya29.short", "expires_in": 3600, "token_type": "Bearer"})
	})
}

func (f *apis) github() {
	f.priced("GET api.github.com/repos/{owner}/{repo}", "github", "repo", 1, func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("owner") + "/" + r.PathValue("repo")
		answerJSON(w, 200, map[string]any{"id": 1, "name": r.PathValue("repo"), "full_name": name, "url": "https://api.github.com/repos/" + name})
	})
	f.priced("GET api.github.com/repos/{owner}/{repo}/issues", "github", "issues", 2, func(w http.ResponseWriter, r *http.Request) {
		if next := following(r, "page"); next != "" {
			query := r.URL.Query()
			query.Set("page", next)
			w.Header().Set("Link", fmt.Sprintf(`<https://api.github.com%s?%s>; rel="next"`, r.URL.Path, query.Encode()))
		}
		answerJSON(w, 200, []any{map[string]any{"id": 1, "number": 1, "title": "one"}, map[string]any{"id": 2, "number": 2, "title": "two"}})
	})
}

// models serves one answer of each of two vendors of models, whole or as a stream.
func (f *apis) models() {
	streamed := func(body io.Reader) bool {
		text, _ := io.ReadAll(body)
		return strings.Contains(strings.ReplaceAll(string(text), " ", ""), `"stream":true`)
	}
	f.priced("POST api.openai.com/v1/chat/completions", "openai", "chat", 10, func(w http.ResponseWriter, r *http.Request) {
		if !streamed(r.Body) {
			answerJSON(w, 200, map[string]any{"id": "c1", "object": "chat.completion", "choices": []any{map[string]any{"index": 0, "finish_reason": "stop", "message": map[string]any{"role": "assistant", "content": "hello"}}}})
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, word := range []string{"hel", "lo"} {
			_, _ = fmt.Fprintf(w, "data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":%q}}]}\n\n", word)
			_ = http.NewResponseController(w).Flush()
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	})
	f.priced("POST api.anthropic.com/v1/messages", "anthropic", "message", 10, func(w http.ResponseWriter, r *http.Request) {
		if !streamed(r.Body) {
			answerJSON(w, 200, map[string]any{"id": "m1", "type": "message", "role": "assistant", "model": "m", "content": []any{map[string]any{"type": "text", "text": "hello"}}, "stop_reason": "end_turn", "usage": map[string]any{"input_tokens": 1, "output_tokens": 1}})
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, event := range []string{
			`{"type":"message_start","message":{"id":"m1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"usage":{"input_tokens":1,"output_tokens":1}}}`,
			`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hello"}}`,
			`{"type":"content_block_stop","index":0}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}`,
			`{"type":"message_stop"}`,
		} {
			name := strings.Split(event, `"`)[3]
			_, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", name, event)
			_ = http.NewResponseController(w).Flush()
		}
	})
}
