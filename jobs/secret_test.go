package jobs

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// A sandbox takes every job, however it sends its secret, if it has one.
func TestTheSandboxTakesEveryJob(t *testing.T) {
	for name, secret := range map[string]config.Secret{
		"none":   {},
		"query":  {Query: "api_key"},
		"header": {Header: "X-Api-Key"},
		"token":  {Header: "Authorization", Prefix: "token "},
	} {
		inBubble(t, name, func(t *testing.T) {
			upstream := &recorded{}
			w := newWorld(t, setup{job: oneRegion, upstream: upstream})
			w.options.Sandbox = &url.URL{Scheme: "http", Host: "sandbox.test"}
			w.list[0].Fetch.Secret = secret
			w.succeeds()
			q := upstream.requests[0]
			check.Equal(t, q.header.Get("X-Goog-Api-Key"), "sandbox", "headers", q.header)
			if secret.Query != "" && !q.query.Has(secret.Query) || secret.Header != "" && q.header.Get(secret.Header) != secret.Prefix+"sandbox" {
				t.Errorf("the job's own way is gone: %v, %v", q.query, q.header)
			}
			w.secretless(w.once())
		})
	}
}

// Upstreams are never sent what the sandbox bills by.
func TestTheSandboxsKeyStaysThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := &recorded{}
		w := newWorld(t, setup{job: oneRegion, upstream: upstream})
		w.once()
		if got := upstream.requests[0].header.Values("X-Goog-Api-Key"); len(got) != 0 {
			t.Errorf("sent %q", got)
		}
	})
}

// No secret is in a sandbox's messages, so that none of their words is one.
func TestTheSandboxsMessagesAreWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion, upstream: answering(403, "", `{"error":{"message":"the sandbox's quota is spent"}}`)})
		w.options.Sandbox = &url.URL{Scheme: "http", Host: "sandbox.test"}
		if run := w.once().Runs[0]; !strings.HasSuffix(run.Error, ": the sandbox's quota is spent") {
			t.Errorf("error %q", run.Error)
		}
	})
}

// A line's end at a secret's end is the shell's or the editor's.
func TestASecretIsTrimmed(t *testing.T) {
	for _, sends := range []string{"query", "header"} {
		synctest.Test(t, func(t *testing.T) {
			upstream := &recorded{}
			w := newWorld(t, setup{job: oneRegion, upstream: upstream})
			w.options.Env = func(string) (string, bool) { return secretKey + "\r\n", true }
			if f := w.list[0].Fetch; sends == "header" {
				f.Secret = config.Secret{Header: "X-Goog-Api-Key"}
			}
			w.succeeds()
			q := upstream.requests[0]
			check.Equal(t, q.query.Get("key")+q.header.Get("X-Goog-Api-Key"), secretKey, sends, "sent")
		})
	}
}

// A secret that no header can carry is found before anything is charged.
func TestASecretThatNoHeaderCarriesCostsNothing(t *testing.T) {
	for _, secret := range []string{"two\nlines", "a\x00b", "a\x7fb", "\r\n"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, setup{job: oneRegion})
			w.options.Env = func(string) (string, bool) { return secret, true }
			f := w.list[0].Fetch
			f.Secret = config.Secret{Header: "X-Api-Key"}
			if err := CheckSecrets(w.list, w.options.Env); err == nil || !strings.Contains(err.Error(), "job trending") || strings.Contains(err.Error(), "lines") {
				t.Errorf("CheckSecrets: %v", err)
			}
			run := w.once().Runs[0]
			if run.Outcome != Failed || run.Reason != ReasonSecret || run.Units != 0 || w.used() != 0 {
				t.Errorf("%q: run %+v", secret, run)
			}
			f.Secret = config.Secret{Query: "key"}
			if err := CheckSecrets(w.list, w.options.Env); (err == nil) != (secret != "\r\n") {
				t.Errorf("%q in a query: %v", secret, err)
			}
		})
	}
}

// An answer that ends within the secret tells nothing of it.
func TestAnAnswerThatIsCutKeepsTheSecret(t *testing.T) {
	for keep := range len(secretKey) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte("the key is " + secretKey[:keep]))
		}))
		w := newWorld(t, setup{job: oneRegion})
		w.options.Transport = nil
		w.list[0].Fetch.URL = server.URL + "/?regionCode={region}"
		run := w.once().Runs[0]
		server.Close()
		check.Equal(t, run.Reason, "status 403", "cut after", keep, "bytes of the secret")
		check.Equal(t, run.Error, "page 1: the upstream answered 403 Forbidden", "cut after", keep, "bytes of the secret")
	}
}

// No writer of a named pipe is waited for, and a secret that is only a line's end is none.
func TestASecretsFileIsRegular(t *testing.T) {
	t.Parallel()
	blank, pipe := filepath.Join(t.TempDir(), "blank"), filepath.Join(t.TempDir(), "pipe")
	must.Do(t, errors.Join(os.WriteFile(blank, []byte("\n"), 0o600), syscall.Mkfifo(pipe, 0o600)))
	for file, want := range map[string]string{blank: " is empty: write it", pipe: " is a pipe, not a regular file"} {
		credential := config.Credential{SecretFile: file}
		j := &Job{Name: "pull", Budget: "shop/main", Fetch: &Fetch{Secret: config.Secret{Header: "X-Key"}}, credential: credential}
		if err := CheckSecrets([]*Job{j}, os.LookupEnv); err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		check.Equal(t, KnownSecret(credential, os.LookupEnv), "", "known")
	}
}
