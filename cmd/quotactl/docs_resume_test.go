package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs/sandbox"
)

// more is as much as anybody wants.
const more = 1000

// more gives a job that much, by an upstream that allows it.
func (j *docJob) more() {
	j.t.Helper()
	text, err := os.ReadFile(filepath.Join(j.dir, "costs.toml"))
	must.Do(j.t, err)
	j.write("costs.toml", strings.ReplaceAll(string(text), "= "+docQuota+"\n", "= 1000\n"))
	began := time.Now()
	if j.upstream, err = sandbox.New(sandbox.Config{Quota: more, Now: func() time.Time { return began }}); err != nil {
		j.t.Fatal(err)
	}
	must.Do(j.t, j.upstream.Listen(j.t.Context(), ""))
	upstream := j.upstream
	j.t.Cleanup(func() { check.NoError(j.t, upstream.Close()) })
	j.env = append(j.env, "YOUTUBE_API="+j.upstream.URL())
}

// asked holds what the upstream counted of a region to so many requests.
func (j *docJob) asked(want int64) {
	j.t.Helper()
	check.Equal(j.t, j.upstream.Usage().Requests, want, "the upstream counted … requests")
}

// The documented program that resumes, alone: what it has is not fetched again.
func TestDocumentedResume(t *testing.T) {
	t.Parallel()
	j := newDocJob(t, "resume", "")
	j.fetch(0, "US")
	j.fetch(exitExhausted, "GB") // not all of its pages
	left := j.limit - pages
	j.more()
	part := filepath.Join(j.dir, "data", "GB.part")
	text := must.Get(os.ReadFile(part))(t)
	must.Do(t, os.WriteFile(part, append(text, `{"of a page that was not kept`...), 0o600))
	j.fetch(0, "GB")
	j.asked(pages - left)
	j.has("GB.ndjson", pages)
	j.hasNo("GB.part")
	j.hasNo("GB.checkpoint")
	j.fetch(0, "GB") // and then from the beginning
	j.asked(pages - left + pages)
	j.has("GB.ndjson", pages)
}

// As a job of the daemon it goes on by what the store has, and begins anew where the
// pages before are not.
func TestDocumentedResumeUnderTheDaemon(t *testing.T) {
	t.Parallel()
	for _, here := range []bool{true, false} {
		j := newDocJob(t, "resume", "")
		j.run(0, "quotactl", "run", "--once")
		j.has("GB.part", j.limit-pages)
		j.hasNo("GB.checkpoint")
		j.more()
		want := pages + pages - (j.limit - pages)
		if !here {
			must.Do(t, os.Remove(filepath.Join(j.dir, "data", "GB.part")))
			want = pages + pages
		}
		var answer struct {
			Passes []struct {
				Outcome string
				Runs    []struct {
					Region  string
					Units   int64
					Resumed bool
				}
			}
		}
		must.Do(t, json.Unmarshal(j.run(0, "quotactl", "run", "--once", "--json"), &answer))
		pass := answer.Passes[0]
		if pass.Outcome != "succeeded" || !pass.Runs[0].Resumed || pass.Runs[1].Resumed || pass.Runs[0].Units+pass.Runs[1].Units != want {
			t.Errorf("here %t: %+v, want %d units", here, pass, want)
		}
		j.asked(want)
		j.has("GB.ndjson", pages)
	}
}
