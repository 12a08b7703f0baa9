package jobs

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/must"
)

// anyName is a region's or a job's name, such as a configuration may have.
var anyName = rapid.OneOf(
	rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._-]{0,62}`),
	rapid.SampledFrom([]string{"US", "a..", "0...", "x.partial", "a-rf", "A", "con", "tick", "job"}),
)

// anyTick is an instant in years of four digits.
var anyTick = rapid.Custom(func(t *rapid.T) time.Time {
	return time.Unix(rapid.Int64Range(0, 250_000_000_000).Draw(t, "tick"), 0)
})

// templates are strings with placeholders among the other text of paths, URLs
// and arguments.
func templates(others ...string) *rapid.Generator[string] {
	part := rapid.SampledFrom(append(others, "{job}", "{region}", "{tick}", "data", "x", ".", "..", "-"))
	return rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(part, 1, 10).Draw(t, "parts"), "")
	})
}

// Names are what they are held to: whatever passes cannot be taken for a path,
// a flag, or a part of a URL; nothing else passes.
func FuzzNames(f *testing.F) {
	for _, name := range []string{"US", "US&key=x", "-rf", "../../x", "..", ".", "", "a/b", "a\\b", "a b", "a\x00", "a\n", "é", "{job}", "a%2f", "a?b", "a#b", "@", strings.Repeat("a", 64)} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if !driver.ValidName(name) {
			return
		}
		if name[0] == '-' || name[0] == '.' || len(name) > 63 || !filepath.IsLocal(name) || filepath.Base(name) != name ||
			url.QueryEscape(name) != name || url.PathEscape(name) != name || strings.ContainsAny(name, "/\\{}&?#%=+ @:'\"\x00\n") {
			t.Errorf("%q is a name", name)
		}
	})
}

// However an output is written, the run's file is in the folder before the first
// placeholder, or is refused.
func TestAnOutputStaysInItsFolder(t *testing.T) {
	root := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		base := filepath.Join(root, "base")
		template := base + "/" + templates("/", "/", "/../", "/./").Draw(t, "output")
		j := &Job{Name: anyName.Draw(t, "job"), Fetch: &Fetch{Output: template}}
		region := rapid.OneOf(anyName, rapid.Just("")).Draw(t, "region")
		tick := anyTick.Draw(t, "tick")
		folder, name := j.outputPlace(tick, region)
		before, _, _ := strings.Cut(template, "{")
		if want := filepath.Clean(before[:strings.LastIndex(before, "/")+1]); folder != want {
			t.Fatalf("%s: the folder is %s, want %s", template, folder, want)
		}
		if !filepath.IsLocal(name) {
			if o, err := createOutput(folder, name, 1); err == nil {
				t.Fatalf("%s: %s is written", template, o.final)
			}
			return
		}
		path := j.outputPath(tick, region)
		if inside, err := filepath.Rel(folder, path); err != nil || !filepath.IsLocal(inside) {
			t.Fatalf("%s: %s is not in %s", template, path, folder)
		}
		if strings.ContainsAny(strings.TrimPrefix(path, root), "{}") {
			t.Fatalf("%s: %s has a placeholder left", template, path)
		}
	})
}

// Placeholders change no more of a URL than the texts they stand in: neither the
// host, where they do not stand in it, nor how many parts a path or query has.
func TestNamesAddNothingToAURL(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		template := "https://host.test/" + templates("/", "?", "&", "=", "a=b", "%20").Draw(t, "url")
		region := rapid.OneOf(anyName, rapid.Just("")).Draw(t, "region")
		stands := strings.Repeat("R", min(1, len(region)))
		want, err := url.Parse(strings.NewReplacer("{job}", "J", "{region}", stands, "{tick}", "T").Replace(template))
		if err != nil {
			return // no URL
		}
		j := &Job{Name: anyName.Draw(t, "job"), Fetch: &Fetch{URL: template, Secret: config.Secret{Query: "key"}, NextParam: "page"}}
		tick := anyTick.Draw(t, "tick")
		secret := rapid.StringN(1, 20, -1).Draw(t, "secret")
		token := rapid.StringN(1, 20, -1).Draw(t, "token")
		f := &fetchRun{run: &run{options: &Options{}, job: j, tick: tick, record: &Run{Region: region}}}
		request := must.Get(f.request(t.Context(), token, secret))(t)
		got := request.URL
		if got.Scheme != "https" || got.Host != want.Host || got.User != nil || got.Fragment != "" {
			t.Fatalf("%s became %s", template, got)
		}
		must.Equal(t, strings.Count(got.EscapedPath(), "/"), strings.Count(want.EscapedPath(), "/"), template, "the path is", got.EscapedPath())
		more := 2 // the secret and the token
		if want.RawQuery == "" {
			more = 1
		}
		if a, b := strings.Count(got.RawQuery, "&"), strings.Count(want.RawQuery, "&"); a != b+more {
			t.Fatalf("%s: the query is %s", template, got.RawQuery)
		}
		query, err := url.ParseQuery(got.RawQuery)
		if err != nil || query.Get("key") != secret || query.Get("page") != token || len(query["key"]) != 1 || len(query["page"]) != 1 {
			t.Fatalf("%s: the query is %s, %v", template, got.RawQuery, err)
		}
	})
}

// Placeholders leave a command's words as many as they were, each beginning as
// it was written; one that is a placeholder alone becomes no flag.
func TestNamesAddNothingToACommand(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(templates("{run}", " ", "--flag=", ";", "'", "$(x)"), 1, 5).Draw(t, "words")
		j := &Job{Name: anyName.Draw(t, "job"), Command: words}
		region := anyName.Draw(t, "region")
		tick := anyTick.Draw(t, "tick")
		label := j.partLabel(tick, 1, region)
		got := (&run{job: j, tick: tick, label: label, record: &Run{Region: region}}).words()
		must.Equal(t, len(got), len(words), words, "became", got)
		for i, word := range words {
			fixed, _, placed := strings.Cut(word, "{")
			if !strings.HasPrefix(got[i], fixed) || !placed && got[i] != word {
				t.Fatalf("%q became %q", word, got[i])
			}
			if placed && fixed == "" && strings.ContainsAny(got[i][:1], "-./~$@ ") {
				t.Fatalf("%q became %q", word, got[i])
			}
		}
	})
}

// A link that someone has put among the outputs does not lead out of them: not
// as a folder, not as a file, not as a partial one.
func TestALinkLeadsNoOutputOut(t *testing.T) {
	const tick = "20000101T000001Z"
	for _, link := range []string{"data/trending", "data/trending/US", "data/trending/US/" + tick + ".ndjson", "data/trending/US/" + tick + ".ndjson.partial"} {
		for _, to := range []string{"absolute", "relative"} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, setup{job: oneRegion})
				outside := filepath.Join(w.dir, "outside")
				target := outside
				if to == "relative" {
					target = strings.Repeat("../", strings.Count(link, "/")) + "outside"
				}
				if strings.Contains(link, "ndjson") { // it would make the file it leads to
					target += "/file"
				}
				for _, folder := range []string{outside, filepath.Dir(filepath.Join(w.dir, link))} {
					must.Do(t, os.MkdirAll(folder, 0o700))
				}
				must.Do(t, os.Symlink(target, filepath.Join(w.dir, link)))
				run := w.scheduled(midnight.Add(time.Second)).Runs[0]
				if run.Outcome != Failed || run.Reason != ReasonOutput || run.Units != 0 || run.Error == "" {
					t.Errorf("%s to %s: run %+v", link, target, run)
				}
				if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
					t.Errorf("%s to %s: outside are %v, %v", link, target, left, err)
				}
			})
		}
	}
}

// The folder of the outputs may itself be a link, as to a larger disk, and links
// within it that stay there are followed.
func TestALinkMayLeadToTheOutputs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion})
		disk := filepath.Join(w.dir, "disk")
		for _, folder := range []string{"trending", "large"} {
			must.Do(t, os.MkdirAll(filepath.Join(disk, folder), 0o700))
		}
		for from, to := range map[string]string{filepath.Join(w.dir, "data"): disk, filepath.Join(disk, "trending/US"): "../large"} {
			must.Do(t, os.Symlink(to, from))
		}
		must.Equal(t, w.once().Runs[0].Outcome, Succeeded)
		if found, err := os.ReadDir(filepath.Join(disk, "large")); err != nil || len(found) != 1 {
			t.Errorf("found %v, %v", found, err)
		}
	})
}

// An output that would leave its folder is an error when it is read.
func TestAnOutputThatLeavesItsFolderIsRefused(t *testing.T) {
	const regions = "regions = [\"US\"]\n"
	for _, test := range []struct {
		output, keys string
		refused      bool
	}{
		{"/srv/{job}/../../x{tick}.ndjson", regions, true},
		{"/srv/{job}/../{tick}.ndjson", regions, false},
		{"/srv/{region}../{tick}.ndjson", regions, false}, // US..
		{"/srv/{region}../{tick}.ndjson", "", true},       // .., without a region
		{"../{job}/{tick}.ndjson", "", false},             // whoever writes the configuration chooses the folder
	} {
		cfg, list := read(t, "[job.small]\nbudget = \"youtube/key1\"\nschedule = \"@daily\"\n"+test.keys+
			"[job.small.fetch]\noperation = \"videos.list\"\nurl = \"https://upstream.test/\"\noutput = \""+test.output+"\"\n")
		if err := cfg.Err(); (err != nil) != test.refused || err != nil && !strings.Contains(err.Error(), "leads out of the folder") {
			t.Errorf("output = %q: %v, want refused: %t", test.output, err, test.refused)
		}
		if len(list) > 0 == test.refused {
			t.Errorf("output = %q: %d jobs", test.output, len(list))
		}
	}
}
