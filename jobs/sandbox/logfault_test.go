package sandbox

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// faultyFile is a log on a disk that fills up.
type faultyFile struct {
	content  []byte
	room     int // bytes that still fit
	truncate error
}

func (f *faultyFile) Write(b []byte) (int, error) {
	n := min(len(b), f.room)
	f.content = append(f.content, b[:n]...)
	f.room -= n
	if n < len(b) {
		return n, errors.New("disk full")
	}
	return n, nil
}

func (f *faultyFile) Truncate(size int64) error {
	if f.truncate == nil {
		f.content = f.content[:size]
	}
	return f.truncate
}

func (f *faultyFile) Close() error { return nil }

// TestRequestThatCannotBeLogged: what the log does not hold must not have been counted or answered.
func TestRequestThatCannotBeLogged(t *testing.T) {
	for _, truncate := range []error{nil, errors.New("truncate failed")} {
		s := must.Get(New(Config{}))(t)
		defer func() { _ = s.Close() }()
		f := &faultyFile{room: 1000, truncate: truncate}
		s.log = &requestLog{file: f, path: "sandbox.log"}
		ask := func() (int, string) {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/youtube/v3/videos?key=k", nil))
			return w.Code, w.Body.String()
		}
		if status, body := ask(); status != 200 {
			t.Fatalf("%d %s", status, body)
		}
		line := string(f.content)

		f.room = 10
		if status, body := ask(); status != 500 || !strings.Contains(body, "sandbox.log: disk full") {
			t.Errorf("%d %s, want 500 that names the log", status, body)
		}
		check.Equal(t, s.Usage(), (Usage{Requests: 1, Units: 1}), "usage, want the first request's")

		f.room = 1000
		status, body := ask()
		if truncate == nil {
			if status != 200 || len(f.content) != 2*len(line) || !strings.HasPrefix(string(f.content), line+`{"at":`) {
				t.Errorf("%d %s; with room again the log is:\n%s", status, body, f.content)
			}
			continue
		}
		if status != 500 || !strings.Contains(body, "truncate failed") || string(f.content) != line+line[:10] {
			t.Errorf("%d %s; behind half a line the log is:\n%s", status, body, f.content)
		}
	}
}
