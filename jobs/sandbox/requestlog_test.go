package sandbox_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs/sandbox"
)

func logPath(t *testing.T) string { return filepath.Join(t.TempDir(), "sandbox.log") }

func read(t *testing.T, path string) string {
	t.Helper()
	b := must.Get(os.ReadFile(path))(t)
	return string(b)
}

func TestLogLines(t *testing.T) {
	now := instant(t, "2026-11-01T08:59:59.000001999+02:00") // the log is in UTC all the same
	path := logPath(t)
	s := open(t, sandbox.Config{Quota: 101, LogPath: path, Now: func() time.Time { return now }})
	get(s, videos)
	get(s, search)
	get(s, videos)
	get(s, "/youtube/v3/videos")
	get(s, "/_sandbox/usage")
	want := `{"at":"2026-11-01T06:59:59.000001Z","method":"GET","path":"/youtube/v3/videos","query":"chart=mostPopular&regionCode=US","units":1,"status":200}
{"at":"2026-11-01T06:59:59.000001Z","method":"GET","path":"/youtube/v3/search","query":"q=cats","units":100,"status":200}
{"at":"2026-11-01T06:59:59.000001Z","method":"GET","path":"/youtube/v3/videos","query":"chart=mostPopular&regionCode=US","units":0,"status":403,"reason":"quotaExceeded"}
{"at":"2026-11-01T06:59:59.000001Z","method":"GET","path":"/youtube/v3/videos","query":"","units":0,"status":403,"reason":"forbidden"}
`
	if got := read(t, path); got != want {
		t.Errorf("log:\n%swant:\n%s", got, want)
	}
}

// written stands before an answer goes out.
type written struct {
	*httptest.ResponseRecorder
	path  string
	first string
}

func (w *written) WriteHeader(status int) {
	b, err := os.ReadFile(w.path)
	w.first = fmt.Sprint(string(b), err)
	w.ResponseRecorder.WriteHeader(status)
}

func TestLogIsWrittenBeforeTheAnswer(t *testing.T) {
	path := logPath(t)
	s := open(t, sandbox.Config{LogPath: path})
	w := &written{ResponseRecorder: httptest.NewRecorder(), path: path}
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, videos, nil))
	check.Contains(t, w.first, `"status":200}`, "when the answer went out the log held")
}

func TestKeyIsNeverWritten(t *testing.T) {
	const secret = "AIzaSecret"
	path := logPath(t)
	s := open(t, sandbox.Config{Quota: 10, LogPath: path})
	answers := ""
	for _, target := range []string{
		"/youtube/v3/videos?regionCode=US&key=" + secret,
		"/youtube/v3/videos?key=" + secret + "&key=" + secret + "2",
		"/youtube/v3/videos?k%65y=" + secret,
		"/youtube/v3/videos?Key=" + secret,
		"/youtube/v3/videos?key=x&access_token=" + secret + "&OAuth_Token=" + secret,
		"/youtube/v3/videos?a=b;key=" + secret,
		"/youtube/v3/nosuch?key=" + secret,
		"/youtube/v3/search?key=" + secret,
		"/youtube/v3/videos?chart=mostPopular&api_key=" + secret,
		"/youtube/v3/videos?key=x&regionCode=US&apikey=" + secret + "&token=" + secret + "&" + secret + "=1",
		"/youtube/v3/videos?key=x&Chart=" + secret + "&q%20=" + secret,
	} {
		answers += get(s, target).Body.String()
	}
	for _, header := range []string{"X-Goog-Api-Key", "Authorization"} {
		r := httptest.NewRequest(http.MethodGet, "/youtube/v3/videos", nil)
		r.Header.Set(header, "Bearer "+secret)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		answers += w.Body.String()
	}
	got := read(t, path)
	if n := strings.Count(got, "\n"); n != 13 {
		t.Fatalf("%d lines, want 13:\n%s", n, got)
	}
	if strings.Contains(got, secret) {
		t.Errorf("the log tells the key:\n%s", got)
	}
	if strings.Contains(answers, secret) {
		t.Errorf("an answer tells the key:\n%s", answers)
	}
}

// Parts that are known to hold no key are logged, in full.
func TestLogShowsYouTubesParameters(t *testing.T) {
	path := logPath(t)
	s := open(t, sandbox.Config{LogPath: path})
	get(s, "/youtube/v3/search?type=video&part=snippet&key=k&order=date&maxResults=7&q=a%26b&nosuch=1&publishedAfter=2026-01-01T00:00:00Z")
	get(s, "/youtube/v3/videos?quotaUser=me&part=id&part=snippet&id=a,b&key=k")
	for _, want := range []string{
		`"query":"maxResults=7&order=date&part=snippet&publishedAfter=2026-01-01T00%3A00%3A00Z&q=a%26b&type=video"`,
		`"query":"id=a%2Cb&part=id&part=snippet"`,
	} {
		check.Contains(t, read(t, path), want, "log")
	}
}

func TestUseSurvivesRestart(t *testing.T) {
	path := logPath(t)
	now := instant(t, "2026-03-08T07:59:59.999999Z")
	cfg := sandbox.Config{Quota: 202, LogPath: path, Seed: 3, Now: func() time.Time { return now }}
	s := open(t, cfg)
	wantStatus(t, s, videos, 200)
	now = instant(t, "2026-03-08T08:00:00Z")
	wantStatus(t, s, search, 200)
	wantStatus(t, s, videos, 200)
	wantStatus(t, s, "/youtube/v3/videos", 403)
	_ = s.Close()

	cfg.FailRate = 1
	s = open(t, cfg)
	wantUsage(t, s, 3, 101, 0)
	wantStatus(t, s, search, 503)
	wantStatus(t, s, search, 403)
	_ = s.Close()

	cfg.FailRate, cfg.DropRate = 0, 1
	s = open(t, cfg)
	must.Equal(t, statusOrAbort(s, videos), 0, "answered, want no answer")
	want := sandbox.Usage{Requests: 6, Units: 202, Rejected: 1, Failed: 1, Dropped: 1}
	check.Equal(t, s.Usage(), want, "usage")
	_ = s.Close()

	cfg.DropRate = 0
	s = open(t, cfg)
	check.Equal(t, s.Usage(), want, "usage after a restart")
	wantStatus(t, s, videos, 403)
	_ = s.Close()

	cfg.Quota = 10 // a lowered quota leaves nothing, and does no harm
	s = open(t, cfg)
	wantStatus(t, s, videos, 403)
	now = instant(t, "2026-03-08T07:00:00Z")
	wantUsage(t, s, 1, 1, 0)
	now = instant(t, "2026-03-09T07:00:00Z")
	wantUsage(t, s, 0, 0, 0)
	wantStatus(t, s, videos, 200)
}

const good = `{"at":"2026-06-01T12:00:00.000000Z","method":"GET","path":"/youtube/v3/videos","query":"","units":1,"status":200}` + "\n"

func TestTornLastLine(t *testing.T) {
	noon := func() time.Time { return instant(t, "2026-06-01T12:00:00Z") }
	for _, cut := range []int{1, 10, len(good) - 1} {
		t.Run(fmt.Sprint(cut), func(t *testing.T) {
			path := logPath(t)
			must.Do(t, os.WriteFile(path, []byte(good+good+good[:cut]), 0o600))
			s := open(t, sandbox.Config{LogPath: path, Now: noon})
			wantUsage(t, s, 2, 2, 0)
			wantStatus(t, s, "/youtube/v3/videos?key=k", 200)
			_ = s.Close()
			if got, want := read(t, path), good+good+good; got != want {
				t.Errorf("log:\n%swant:\n%s", got, want)
			}
			wantUsage(t, open(t, sandbox.Config{LogPath: path, Now: noon}), 3, 3, 0)
		})
	}
}

func TestDamagedLine(t *testing.T) {
	for name, bad := range map[string]string{
		"no JSON":        "garbage\n",
		"torn":           good[:20] + "\n",
		"empty":          "\n",
		"local time":     strings.Replace(good, "Z", "+02:00", 1),
		"no time":        strings.Replace(good, "2026-06-01T", "", 1),
		"negative units": strings.Replace(good, `"units":1`, `"units":-1`, 1),
		"absurd units":   strings.Replace(good, `"units":1`, `"units":1000000000000001`, 1),
		"two lines":      strings.TrimSuffix(good, "\n") + good,
	} {
		t.Run(name, func(t *testing.T) {
			path := logPath(t)
			content := good + bad + good
			must.Do(t, os.WriteFile(path, []byte(content), 0o600))
			s, err := sandbox.New(sandbox.Config{LogPath: path})
			if err == nil {
				_ = s.Close()
				t.Fatal("the log was taken")
			}
			if !strings.Contains(err.Error(), path+":2: ") || !strings.Contains(err.Error(), "remove the line") {
				t.Errorf("error %q: want %s:2 and what to do", err, path)
			}
			check.Equal(t, read(t, path), content, "the log was changed")
			must.Do(t, os.WriteFile(path, []byte(good), 0o600))
			open(t, sandbox.Config{LogPath: path}) // the failed one let go of the log
		})
	}
}

func TestLogThatCannotBeOpened(t *testing.T) {
	path := filepath.Join(logPath(t), "missing", "sandbox.log")
	if _, err := sandbox.New(sandbox.Config{LogPath: path}); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v, want one that names %s", err, path)
	}
}

func TestSecondServerIsRefused(t *testing.T) {
	path := logPath(t)
	first := open(t, sandbox.Config{LogPath: path})
	wantStatus(t, first, videos, 200)
	_, err := sandbox.New(sandbox.Config{LogPath: path})
	if !errors.Is(err, sandbox.ErrLogInUse) || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v, want ErrLogInUse and %s", err, path)
	}
	wantStatus(t, first, videos, 200)
	_ = first.Close()
	wantUsage(t, open(t, sandbox.Config{LogPath: path}), 2, 2, 0)
}

// TestSecondProcessIsRefused runs itself again as the second process.
func TestSecondProcessIsRefused(t *testing.T) {
	const env = "SANDBOX_TEST_HELD_LOG"
	if path := os.Getenv(env); path != "" {
		_, err := sandbox.New(sandbox.Config{LogPath: path})
		fmt.Println("in use:", errors.Is(err, sandbox.ErrLogInUse), err)
		return
	}
	path := logPath(t)
	again := func() string {
		cmd := exec.Command(os.Args[0], "-test.run=^TestSecondProcessIsRefused$")
		cmd.Env = append(os.Environ(), env+"="+path)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	s := open(t, sandbox.Config{LogPath: path})
	if out := again(); !strings.Contains(out, "in use: true") || !strings.Contains(out, path) {
		t.Errorf("beside a live one: %s", out)
	}
	_ = s.Close()
	check.Contains(t, again(), "in use: false <nil>", "after it")
}

func TestLogOfConcurrentRequestsAddsUp(t *testing.T) {
	path := logPath(t)
	s := open(t, sandbox.Config{Quota: 1010, LogPath: path, FailRate: 0.3, Seed: 9})
	var all sync.WaitGroup
	for i := range 60 {
		all.Go(func() {
			target := videos
			if i%3 == 0 {
				target = search
			}
			get(s, target)
		})
	}
	all.Wait()
	var units int64
	for n, l := range strings.Split(strings.TrimSuffix(read(t, path), "\n"), "\n") {
		var e struct {
			Path   string
			Units  int64
			Reason string
		}
		if err := json.Unmarshal([]byte(l), &e); err != nil {
			t.Fatalf("line %d: %v", n+1, err)
		}
		price := int64(1)
		if strings.HasSuffix(e.Path, "/search") {
			price = 100
		}
		fits := units+price <= 1010
		must.Equal(t, fits, e.Reason != "quotaExceeded", "line")
		must.Equal(t, fits, e.Units == price, "line")
		units += e.Units
	}
	if got := s.Usage(); got.Units != units || got.Requests != 60 || got.Rejected == 0 {
		t.Errorf("usage %+v, the log has %d units", got, units)
	}
	if mode, err := os.Stat(path); err != nil || mode.Mode().Perm() != 0o600 {
		t.Errorf("log: %v, %v", mode.Mode(), err)
	}
}
