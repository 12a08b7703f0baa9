package jobs

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

const oneRegion = `regions = ["US"]`

// answering is an upstream with one answer.
func answering(status int, header, body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if name, value, ok := strings.Cut(header, ": "); ok {
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	})
}

// secretless fails when the secret stands anywhere that is kept or told.
func (w *world) secretless(p Pass) {
	w.t.Helper()
	told := w.log.String() + string(w.state().Last)
	for _, run := range p.Runs {
		told += run.Error + run.Reason + run.Output
	}
	for _, name := range w.files() {
		text := readFile(w.t, filepath.Join(w.dir, "data", name))
		told += name + text
	}
	for _, form := range []string{secretKey, "AIza-s3cret"} {
		if strings.Contains(told, form) {
			w.t.Errorf("the secret got out:\n%s", told)
		}
	}
}

func TestAnAnswerThatIsNoPageFailsTheRun(t *testing.T) {
	for _, test := range []struct {
		name, header, body string
		status             int
		reason, tells      string
	}{
		{"forbidden", "", `{"error":{"message":"no quota for key ` + secretKey + `"}}`, 403, "status 403", "no quota for key [secret]"},
		{"too many", "", `{"error":{"message":"Quota exceeded per day"}}`, 429, "status 429", "Quota exceeded per day"},
		{"text", "", "<html>\nAIza-s3cret%26key down", 503, "status 503", "<html> [secret] down"},
		{"long text", "", strings.Repeat("x", 195) + secretKey + strings.Repeat("y", 9000), 500, "status 500", "x[secr…"},
		{"no content", "", "", 204, "status 204", "204 No Content"},
		{"redirect", "Location: https://elsewhere.test/?key=AIza-s3cret", "", 302, "status 302", "302 Found"},
		{"not JSON", "", "hello", 200, ReasonBody, "not JSON"},
		{"two values", "", "{} {}", 200, ReasonBody, "not JSON"},
		{"token of a wrong type", "", `{"nextPageToken":{}}`, 200, ReasonBody, "neither a string nor a number"},
	} {
		inBubble(t, test.name, func(t *testing.T) {
			upstream := &recorded{Handler: answering(test.status, test.header, test.body)}
			w := newWorld(t, setup{job: oneRegion, upstream: upstream})
			p := w.once()
			run := p.Runs[0]
			if run.Outcome != Failed || run.Reason != test.reason || !strings.Contains(run.Error, test.tells) {
				t.Errorf("run %+v, want failed (%s) telling %q", run, test.reason, test.tells)
			}
			if run.Pages != 0 || run.Units != 1 || run.Output != "" || len(w.files()) != 0 {
				t.Errorf("run %+v, files %v; want the unit charged and nothing kept", run, w.files())
			}
			check.Equal(t, upstream.count(), 1, "requests for one charge")
			w.secretless(p)
		})
	}
}

// What came before the fault is kept, and named so.
func TestPagesBeforeAFaultAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		w := newWorld(t, setup{job: oneRegion, upstream: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			if asked.Add(1) == 3 {
				rw.WriteHeader(http.StatusInternalServerError)
				return
			}
			_, _ = rw.Write([]byte("{ \"page\" : " + string('0'+rune(asked.Load())) + ",\n\"nextPageToken\":" + string('0'+rune(asked.Load())) + "}"))
		})})
		p := w.once()
		run := p.Runs[0]
		if run.Outcome != Failed || run.Pages != 2 || run.Units != 3 || run.Calls != 3 {
			t.Errorf("run %+v", run)
		}
		kept, err := os.ReadFile(run.Output)
		if err != nil || !strings.HasSuffix(run.Output, ".ndjson.partial") {
			t.Fatalf("output %q: %v", run.Output, err)
		}
		if want := "{\"page\":1,\"nextPageToken\":1}\n{\"page\":2,\"nextPageToken\":2}\n"; string(kept) != want {
			t.Errorf("kept %q, want %q", kept, want)
		}
	})
}

func TestTheSecretIsSentAndStaysInside(t *testing.T) {
	for _, test := range []struct {
		name, header string
		sent         func(request) string
	}{
		{"query", "", func(q request) string { return q.query.Get("key") }},
		{"header", `{ header = "Authorization", prefix = "Bearer " }`, func(q request) string {
			return strings.TrimPrefix(q.header.Get("Authorization"), "Bearer ")
		}},
	} {
		inBubble(t, test.name, func(t *testing.T) {
			upstream := &recorded{}
			w := newWorld(t, setup{job: oneRegion, upstream: upstream})
			if test.header != "" {
				w.list[0].Fetch.Secret = config.Secret{Header: "Authorization", Prefix: "Bearer "}
			}
			p := w.once()
			must.Equal(t, p.Outcome, Succeeded, p.Runs)
			for i, q := range upstream.requests {
				check.Equal(t, test.sent(q), secretKey, "request", i, "was sent with")
				check.Equal(t, q.header.Get("User-Agent"), "quotactl", "request", i, "names itself")
			}
			w.secretless(p)
		})
	}
}

// The network's errors tell whom they could not reach, not with what.
func TestANetworkErrorKeepsTheSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion, upstream: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		})})
		p := w.once()
		if run := p.Runs[0]; run.Outcome != Failed || run.Reason != ReasonNetwork || run.Units != 1 ||
			!strings.Contains(run.Error, "no answer from upstream.test: connection reset by ") {
			t.Errorf("run %+v", run)
		}
		w.secretless(p)
	})
}

func TestAMissingSecretCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion})
		w.options.Env = func(string) (string, bool) { return "", true }
		err := CheckSecrets(w.list, w.options.Env)
		if err == nil || !strings.Contains(err.Error(), "YOUTUBE_API_KEY") || !strings.Contains(err.Error(), "--sandbox") {
			t.Errorf("CheckSecrets: %v", err)
		}
		p := w.once()
		if run := p.Runs[0]; run.Outcome != Failed || run.Reason != ReasonSecret || run.Units != 0 || w.used() != 0 {
			t.Errorf("run %+v, used %d", run, w.used())
		}
	})
}

func TestASecretFileIsReadForEachRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := &recorded{}
		w := newWorld(t, setup{job: oneRegion, upstream: upstream})
		file := filepath.Join(w.dir, "key")
		w.list[0].credential.SecretEnv, w.list[0].credential.SecretFile = "", file
		if err := CheckSecrets(w.list, w.options.Env); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("without the file: %v", err)
		}
		write := func(secret string) { check.NoError(t, os.WriteFile(file, []byte(secret+"\n"), 0o600)) }
		write("first")
		upstream.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			write("second")
			w.sandbox.ServeHTTP(rw, r)
		})
		w.once()
		var sent []string
		for _, q := range upstream.requests {
			sent = append(sent, q.query.Get("key"))
		}
		check.EqualSlices(t, sent, []string{"first", "second", "second", "second"}, "secrets sent")
	})
}

// Go's transport repeats a GET by itself when a kept connection dies; the
// upstream would count a request that nobody charged.
func TestADroppedConnectionIsOneRequest(t *testing.T) {
	upstream := &recorded{}
	upstream.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("pageToken") == "2" {
			panic(http.ErrAbortHandler) // cuts the connection without an answer
		}
		_, _ = w.Write([]byte(`{"nextPageToken":"2"}`))
	})
	server := httptest.NewServer(upstream)
	defer server.Close()
	w := newWorld(t, setup{job: oneRegion})
	w.options.Transport = nil
	w.list[0].Fetch.URL = server.URL + "/?regionCode={region}"
	p := w.once()
	if run := p.Runs[0]; run.Outcome != Failed || run.Reason != ReasonNetwork || run.Units != 2 {
		t.Errorf("run %+v", run)
	}
	if n := upstream.count(); int64(n) != w.used() {
		t.Errorf("%d requests, %d units charged", n, w.used())
	}
	w.secretless(p)
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	elsewhere := &recorded{Handler: answering(200, "", "{}")}
	other := httptest.NewServer(elsewhere)
	defer other.Close()
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusFound))
	defer server.Close()
	w := newWorld(t, setup{job: oneRegion})
	w.options.Transport = nil
	w.list[0].Fetch.URL = server.URL + "/?regionCode={region}"
	if run := w.once().Runs[0]; run.Outcome != Failed || run.Reason != "status 302" || elsewhere.count() != 0 {
		t.Errorf("run %+v, %d requests elsewhere", run, elsewhere.count())
	}
}

func TestBodiesAndPages(t *testing.T) {
	for _, test := range []struct {
		name, fetch, body string
		outcome           Outcome
		reason, file      string
		requests          int
	}{
		{"items", `items = "data.list"`, `{"data":{"list":[{"a": 1}, "b", 3.10]}}`, Succeeded, "", "{\"a\":1}\n\"b\"\n3.10\n", 1},
		{"no items on a page", `items = "items"`, `{"items":[]}`, Succeeded, "", "", 1},
		{"items are null", `items = "items"`, `{"items":null}`, Succeeded, "", "", 1},
		{"items are missing", `items = "items"`, `{"entries":[]}`, Failed, ReasonBody, "", 1},
		{"items are no array", `items = "items"`, `{"items":{}}`, Failed, ReasonBody, "", 1},
		{"large numbers stay", "", `{"n":12345678901234567890, "f":1e400}`, Succeeded, "", "{\"n\":12345678901234567890,\"f\":1e400}\n", 1},
		{"a cap on pages", "max_pages = 3", `{"nextPageToken":7}`, Succeeded, "", "", 2},
		{"a token that repeats itself", "", `{"nextPageToken":"same"}`, Failed, ReasonBody, "", 2},
		{"a false token is none", "", `{"nextPageToken":false}`, Succeeded, "", "{\"nextPageToken\":false}\n", 1},
		{"an array is the last page", "", `[ 1 ]`, Succeeded, "", "[1]\n", 1},
	} {
		inBubble(t, test.name, func(t *testing.T) {
			upstream := &recorded{Handler: answering(200, "", test.body)}
			w := newWorld(t, setup{job: oneRegion, fetch: test.fetch, upstream: upstream})
			if test.name == "a cap on pages" {
				w.list[0].Fetch.MaxPages = 2
			}
			run := w.once().Runs[0]
			if run.Outcome != test.outcome || run.Reason != test.reason || upstream.count() != test.requests {
				t.Errorf("run %+v after %d requests", run, upstream.count())
			}
			if test.outcome != Succeeded || test.requests > 1 {
				return
			}
			if got, err := os.ReadFile(run.Output); err != nil || string(got) != test.file {
				t.Errorf("file %q, want %q: %v", got, test.file, err)
			}
		})
	}
}

// Pages that lead back to one another end the run, not the budget.
func TestALoopOfPagesEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := &recorded{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			next := map[string]string{"": "A", "A": "B", "B": "C", "C": "A"}
			_, _ = rw.Write([]byte(`{"nextPageToken":"` + next[r.URL.Query().Get("pageToken")] + `"}`))
		})}
		w := newWorld(t, setup{job: oneRegion, upstream: upstream, limit: 100})
		run := w.once().Runs[0]
		if run.Outcome != Failed || run.Reason != ReasonBody || run.Pages != 4 || !strings.Contains(run.Error, "page 4 names as the next page one that was already fetched") {
			t.Errorf("run %+v after %d requests", run, upstream.count())
		}
	})
}

func TestABodyThatIsTooLargeFails(t *testing.T) {
	for _, test := range []struct {
		size int
		want Outcome
	}{{100, Succeeded}, {101, Failed}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, setup{job: oneRegion, upstream: answering(200, "", `"`+strings.Repeat("x", test.size-2)+`"`)})
			r := w.runner()
			r.maxBody = 100
			if run := r.Once(t.Context(), nil)[0].Runs[0]; run.Outcome != test.want ||
				strings.Contains(run.Error, "more than 100 bytes") != (test.want == Failed) {
				t.Errorf("%d bytes of at most 100: %+v", test.size, run)
			}
		})
	}
}

// An output that is there already, whole or partial, costs nothing and stays:
// a manual pass takes another second, a scheduled one fails.
func TestAnOutputIsNeverOverwritten(t *testing.T) {
	for _, suffix := range []string{"", partialSuffix} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, setup{job: oneRegion})
			path := filepath.Join(w.dir, "data/trending/US/20000101T000001Z.ndjson"+suffix)
			must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
			must.Do(t, os.WriteFile(path, []byte("mine"), 0o600))
			if run := w.scheduled(midnight.Add(time.Second)).Runs[0]; run.Outcome != Failed || run.Reason != ReasonOutput || run.Units != 0 {
				t.Errorf("run %+v", run)
			}
			check.Equal(t, len(w.files()), 1, "files", w.files())
			if p := w.once(); p.Outcome != Succeeded || p.Tick.Format(TickFormat) != "20000101T000002Z" {
				t.Errorf("manual pass of %s: %+v", p.Tick, p.Runs)
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != "mine" {
				t.Errorf("%s now holds %q: %v", path, got, err)
			}
		})
	}
}

// A final name that comes into being while the run fetches stays unchanged.
func TestAnOutputIsNotOverwrittenAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w *world
		w = newWorld(t, setup{job: oneRegion, upstream: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			for _, name := range w.files() {
				check.NoError(t, os.WriteFile(filepath.Join(w.dir, "data", strings.TrimSuffix(name, partialSuffix)), []byte("mine"), 0o600))
			}
			_, _ = rw.Write([]byte("{}"))
		})})
		run := w.once().Runs[0]
		if run.Outcome != Failed || run.Reason != ReasonOutput || !strings.HasSuffix(run.Output, partialSuffix) {
			t.Errorf("run %+v", run)
		}
		check.Contains(t, run.Error, "it is not overwritten", "the error … does not tell why")
		if got, err := os.ReadFile(strings.TrimSuffix(run.Output, partialSuffix)); err != nil || string(got) != "mine" {
			t.Errorf("the final file holds %q: %v", got, err)
		}
		if !slices.ContainsFunc(w.files(), func(name string) bool { return strings.HasSuffix(name, partialSuffix) }) {
			t.Errorf("what was fetched is gone: %v", w.files())
		}
	})
}
