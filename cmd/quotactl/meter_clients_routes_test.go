package main

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// fileSize is the length of what /file and /packed serve.
const fileSize = 20_000

// common serves what every HTTP client can do, at api.example.invalid.
func (f *apis) common() {
	const host = " api.example.invalid"
	f.priced("GET"+host+"/token/items", "api", "list", 1, func(w http.ResponseWriter, r *http.Request) {
		answer := map[string]any{"items": []int{1, 2}}
		if next := following(r, "pageToken"); next != "" {
			answer["nextPageToken"] = next
		}
		answerJSON(w, 200, answer)
	})
	f.priced("GET"+host+"/absolute/items", "api", "list", 1, func(w http.ResponseWriter, r *http.Request) {
		answer := map[string]any{"items": []int{1, 2}}
		if next := following(r, "page"); next != "" {
			answer["next"] = "https://api.example.invalid/absolute/items?page=" + next
		}
		answerJSON(w, 200, answer)
	})
	f.priced("GET"+host+"/link/items", "api", "list", 1, func(w http.ResponseWriter, r *http.Request) {
		if next := following(r, "page"); next != "" {
			w.Header().Set("Link", `<https://api.example.invalid/link/items?page=`+next+`>; rel="next"`)
		}
		answerJSON(w, 200, []int{1, 2})
	})
	received := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		answerJSON(w, 200, map[string]any{"bytes": len(body)})
	}
	f.priced("POST"+host+"/upload", "api", "upload", 50, received)
	f.priced("PUT"+host+"/upload", "api", "upload", 50, received)
	f.resumable("api", "resumable", 100, "api.example.invalid/resumable")
	f.priced("GET"+host+"/events", "api", "events", 5, serveEvents)
	f.priced("GET"+host+"/packed/{encoding}", "api", "packed", 2, servePacked)
	f.priced("HEAD"+host+"/file", "api", "head", 1, serveFile)
	f.priced("GET"+host+"/file", "api", "file", 3, serveFile)
	f.priced("GET"+host+"/moved", "api", "redirect", 1, http.RedirectHandler("/file", http.StatusFound).ServeHTTP)
	f.priced("GET"+host+"/away", "api", "redirect", 1, http.RedirectHandler("https://files.example.net/data", http.StatusFound).ServeHTTP)
	f.HandleFunc("GET files.example.net/data", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "elsewhere") })
	f.priced("GET"+host+"/slow", "api", "slow", 7, serveSlowly)
	f.priced("GET"+host+"/parallel", "api", "parallel", 1, func(w http.ResponseWriter, _ *http.Request) { answerJSON(w, 200, "ok") })
}

// following is the page after the one that the request names, of three; empty after the last.
func following(r *http.Request, parameter string) string {
	page, _ := strconv.Atoi(r.URL.Query().Get(parameter))
	if page = max(page, 1); page < 3 {
		return strconv.Itoa(page + 1)
	}
	return ""
}

// resumable serves an upload that is charged once, with its start.
func (f *apis) resumable(upstream, operation string, units int, place string) {
	f.priced("POST "+place, upstream, operation, units, func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		id := strconv.Itoa(len(f.uploads) + 1)
		f.uploads[id] = 0
		f.mu.Unlock()
		w.Header().Set("Location", "https://"+r.Host+r.URL.Path+"?upload_id="+id)
		answerJSON(w, 200, map[string]any{"id": "whole"})
	})
	f.HandleFunc("PUT "+place, func(w http.ResponseWriter, r *http.Request) {
		length, _ := io.Copy(io.Discard, r.Body)
		f.mu.Lock()
		id := r.URL.Query().Get("upload_id")
		f.uploads[id] += int(length)
		have := f.uploads[id]
		f.mu.Unlock()
		var first, last, total int
		if _, err := fmt.Sscanf(r.Header.Get("Content-Range"), "bytes %d-%d/%d", &first, &last, &total); err != nil || last+1 != have {
			answerJSON(w, 400, map[string]any{"error": "not the next part"})
			return
		}
		if have < total {
			w.Header().Set("Range", fmt.Sprintf("bytes=0-%d", last))
			w.WriteHeader(http.StatusPermanentRedirect) // the upload is not complete
			return
		}
		answerJSON(w, 200, map[string]any{"id": "whole", "bytes": have})
	})
}

func serveEvents(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	for i := range 5 {
		_, _ = fmt.Fprintf(w, "data: {\"event\": %d}\n\n", i)
		_ = http.NewResponseController(w).Flush()
	}
}

func servePacked(w http.ResponseWriter, r *http.Request) {
	var packed bytes.Buffer
	encoding := r.PathValue("encoding")
	var to io.WriteCloser
	switch encoding {
	case "gzip":
		to = gzip.NewWriter(&packed)
	case "br":
		to = brotli.NewWriter(&packed)
	case "zstd":
		to, _ = zstd.NewWriter(&packed)
	default:
		http.NotFound(w, r)
		return
	}
	_, _ = to.Write(bytes.Repeat([]byte("0123456789"), fileSize/10))
	_ = to.Close()
	w.Header().Set("Content-Encoding", encoding)
	w.Header().Set("Content-Length", strconv.Itoa(packed.Len()))
	_, _ = w.Write(packed.Bytes())
}

func serveFile(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("ETag", `"first"`)
	http.ServeContent(w, r, "file.txt", time.Time{}, strings.NewReader(strings.Repeat("x", fileSize)))
}

// serveSlowly writes a line ten times a second until the client is gone.
func serveSlowly(w http.ResponseWriter, r *http.Request) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := io.WriteString(w, "line\n"); err != nil || http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
	}
}

// grpc serves quota.Test at grpc.example.com, without the library: messages go back as they came.
func (f *apis) grpc() {
	const service = "POST grpc.example.com/quota.Test/"
	echo := func(times int, each bool) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
			var last []byte
			for {
				message, err := readMessage(r.Body)
				if err != nil {
					break
				}
				if last = message; each {
					_, _ = w.Write(message)
					_ = http.NewResponseController(w).Flush()
				}
			}
			for range times {
				_, _ = w.Write(last)
			}
		}
	}
	f.priced(service+"Unary", "grpc", "unary", 1, echo(1, false))
	f.priced(service+"Serve", "grpc", "stream", 10, echo(5, false))
	f.priced(service+"Collect", "grpc", "stream", 10, echo(1, false))
	f.priced(service+"Echo", "grpc", "stream", 10, echo(0, true))
	// Fail answers with headers alone, which end the stream: as servers fail a call.
	f.priced(service+"Fail", "grpc", "failed", 1, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Grpc-Status", r.Header.Get("X-Want"))
		w.Header().Set("Grpc-Message", r.Header.Get("X-Text"))
	})
}

// readMessage reads one message of a gRPC stream, with the five bytes before it.
func readMessage(r io.Reader) ([]byte, error) {
	head := make([]byte, 5)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	message := append(head, make([]byte, binary.BigEndian.Uint32(head[1:]))...)
	_, err := io.ReadFull(r, message[5:])
	return message, err
}
