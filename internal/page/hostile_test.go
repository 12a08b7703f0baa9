package page

import (
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/screen"
	"github.com/quotactl/quotactl/jobs"
)

// hostile are strings that would be markup, script, another attribute or another address, where
// a page did not escape them.
var hostile = []string{
	`<script>alert(1)</script>`,
	`"><img src=x onerror=alert(1)>`,
	`' onmouseover='alert(1)`,
	`</title></pre></svg><h1>x</h1>`,
	`javascript:alert(1)`,
	`{{.Visitor.CSRF}}<!-- ]]>`,
	"\x00\x1b[31m\r\n\x7f\u202e\u0085",
	`&lt;b&gt;&#34;`,
	"2026-11-27 21:14:05Z<b>2026-99-99 99:99:99Z",
}

// shape is a page without its texts: its elements and the names of their attributes, and where
// they lead.
func shape(page *element) string {
	var b strings.Builder
	for _, e := range page.all(func(*element) bool { return true }) {
		if e.name == "time" || e.name == "bdi" { // a text may name an instant, which divides it
			continue
		}
		fmt.Fprintf(&b, "%s %v", e.name, slices.Sorted(maps.Keys(e.attrs)))
		for _, name := range []string{"href", "action", "src"} {
			if to := e.attrs[name]; to != "" {
				fmt.Fprintf(&b, " %s", strings.SplitN(to, "?", 2)[0])
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// shapesOf are the shapes of every nth page, from the first on, of a world in which everything
// that can be is said with a text.
func shapesOf(t testing.TB, text string, first, nth int) map[string]string {
	w := newWorld(t)
	w.lives(t, text)
	named := strings.Map(func(r rune) rune { // neither names nor tokens have these
		if screen.Obeyed(r) {
			return -1
		}
		return r
	}, text)
	w.visitor = Visitor{MayAct: true, SignedIn: true, Token: true, CSRF: named, Said: text}
	w.o.Version, w.reader.URL = text, text
	// Names are checked where a configuration is read. Here they are not.
	job := *w.reader.Jobs[2]
	job.Name, job.Regions = "z"+named, []string{"z" + named}
	w.reader.Jobs = append(w.reader.Jobs, &job)
	type page struct{ name, address string }
	pages := []page{{"/job", "/job" + query("name", job.Name)}}
	for _, path := range everyPage {
		pages = append(pages, page{path, path})
	}
	for _, path := range []string{"/job", "/runs", "/budget", "/jobs", "/why", "/plan"} {
		for _, name := range []string{"name", "q", "job", "outcome", "budget", "operation", "for", "page"} {
			pages = append(pages, page{path + " " + name, path + query(name, "no "+text)})
		}
	}
	found := map[string]string{}
	for i := first % nth; i < len(pages); i += nth {
		got := w.answer(t, pages[i].address).Body.String()
		if strings.ContainsAny(got, "\x00\x1b\x7f\u0085") {
			t.Errorf("%s: a control character", pages[i].address)
		}
		found[pages[i].name] = shape(parse(t, pages[i].address, got))
	}
	return found
}

// No text makes an element, an attribute or an address of a page.
func TestHostileTexts(t *testing.T) {
	effort.Unraced(t)
	plain := shapesOf(t, "plain words", 0, 1)
	for _, text := range hostile {
		for path, got := range shapesOf(t, text, 0, 1) {
			check.Equal(t, got, plain[path], path, "with", text)
		}
	}
}

// Each text is read on a tenth of the pages, another one for other texts: all pages take a second.
func FuzzTexts(f *testing.F) { // slow
	for _, text := range hostile {
		f.Add(text)
	}
	plain := shapesOf(f, "plain words", 0, 1)
	f.Fuzz(func(t *testing.T, text string) {
		if strings.TrimSpace(text) == "" || len(text) > 200 { // what is empty is not shown
			return
		}
		for path, got := range shapesOf(t, text, int(crc32.ChecksumIEEE([]byte(text))%10), 10) {
			check.Equal(t, got, plain[path], path)
		}
	})
}

// Paths to return to lead to this site.
func TestLocal(t *testing.T) {
	for path, want := range map[string]bool{"/": true, "/jobs?q=a": true, "": false, "jobs": false, "//other": false, `/\up`: false, "https://elsewhere": false, "/a\r\nb": true} {
		check.Equal(t, local(path), want, path)
	}
}

// A sentence is divided at its instants, and nothing of it is lost but control characters.
func TestProse(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "",
		"no instant":                             "[no instant]",
		"until 2026-11-27 21:14:05Z: why":        "[until ]2026-11-27T21:14:05Z[: why]",
		"2026-11-27T21:14:05.000001Z":            "2026-11-27T21:14:05Z",
		"2026-13-27 21:14:05Z and 12026-11-27 1": "[2026-13-27 21:14:05Z and 12026-11-27 1]",
		"a\x00b\n2026-11-27 21:14:05Z":           "[a?b?]2026-11-27T21:14:05Z",
		"from 2026-11-27 21:14:05Z to 2026-11-28 21:14:05Z.": "[from ]2026-11-27T21:14:05Z[ to ]2026-11-28T21:14:05Z[.]",
	} {
		got := ""
		for _, part := range prose(text) {
			if part.Text != "" {
				got += "[" + part.Text + "]"
			} else {
				got += stamp(part.At)
			}
		}
		check.Equal(t, got, want, text)
	}
}

// Numbers have commas.
func TestCount(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "-1,234", 1e15: "1,000,000,000,000,000"} {
		check.Equal(t, count(n), want)
	}
}

// Every outcome has a shape that the page has a symbol for, and a level.
func TestOutcomes(t *testing.T) {
	for o, want := range map[jobs.Outcome]string{
		jobs.Succeeded: "succeeded good", jobs.Exhausted: "exhausted low", jobs.Failed: "failed out", jobs.TimedOut: "failed out", jobs.Drained: "drained low", jobs.Skipped: "skipped quiet", jobs.Missed: "missed out", jobs.Lost: "missed out",
	} {
		check.Equal(t, shapeOf(o)+" "+outcomeLevel(o), want, o)
	}
}
