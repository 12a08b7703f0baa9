package upstream

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/must"
)

// Fixture is an API's response, as its documentation shows it.
type Fixture struct {
	Status int
	Header http.Header
	Body   []byte
}

// NewFixture reads one of the responses with which the presets are tested.
func NewFixture(t testing.TB, name string) Fixture {
	t.Helper()
	file := must.Get(os.Open(filepath.Join("..", "..", "..", "internal", "presets", "testdata", name)))(t)
	defer func() { _ = file.Close() }()
	resp, err := http.ReadResponse(bufio.NewReader(file), nil)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for _, own := range []string{"Connection", "Content-Length", "Date"} {
		resp.Header.Del(own)
	}
	return Fixture{resp.StatusCode, resp.Header, body}
}

// Answer writes the response.
func (f Fixture) Answer(w http.ResponseWriter, r *http.Request) {
	for name, values := range f.Header {
		w.Header()[name] = values
	}
	write(w, r, f.Status, f.Body)
}

// JSON answers with a value.
func JSON(w http.ResponseWriter, r *http.Request, status int, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // a value of the test's own
	}
	write(w, r, status, text)
}

// write writes a response, compressed if the client accepts that.
func write(w http.ResponseWriter, r *http.Request, status int, text []byte) {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
	}
	if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.WriteHeader(status)
		_, _ = w.Write(text)
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	w.WriteHeader(status)
	packed := gzip.NewWriter(w)
	_, _ = packed.Write(text)
	_ = packed.Close()
}
