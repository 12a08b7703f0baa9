package main

import (
	"encoding/xml"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

var imagePattern = regexp.MustCompile(`!\[([^\]]*)\]\(([^)\s]+\.(?:svg|png))\)`)

// Each picture of the documentation is shown by a page, in words too; each picture
// that a page shows exists, and can be read in light, in dark and by a screen reader.
func TestPictures(t *testing.T) {
	top := os.DirFS(filepath.Join("..", ".."))
	pictures := map[string]bool{}
	shown := map[string]bool{}
	pages := must.Get(fs.Glob(top, "*.md"))(t)
	must.Do(t, fs.WalkDir(top, "docs", func(name string, _ fs.DirEntry, err error) error {
		switch path.Ext(name) {
		case ".md":
			pages = append(pages, name)
		case ".svg", ".png":
			pictures[name] = true
		}
		return err
	}))
	for _, page := range pages {
		for _, found := range imagePattern.FindAllStringSubmatch(string(must.Get(fs.ReadFile(top, page))(t)), -1) {
			if strings.TrimSpace(found[1]) == "" {
				t.Errorf("%s: %s has no words for those who cannot see it", page, found[2])
			}
			shown[path.Join(path.Dir(page), found[2])] = true
		}
	}
	check.EqualSlices(t, slices.Sorted(maps.Keys(shown)), slices.Sorted(maps.Keys(pictures)), "pictures that pages show, and those in docs")
	styles := map[string]bool{}
	for name := range pictures {
		if path.Ext(name) == ".png" { // taken of a page, which has its own tests
			continue
		}
		styles[readPicture(t, name, must.Get(fs.ReadFile(top, name))(t))] = true
	}
	check.Equal(t, len(styles), 1, "styles of all pictures")
}

// readPicture reads a picture and returns its style.
func readPicture(t *testing.T, name string, picture []byte) string {
	t.Helper()
	texts := map[string]string{}
	var open []string
	decoder := xml.NewDecoder(strings.NewReader(string(picture)))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		must.Do(t, err)
		switch token := token.(type) {
		case xml.StartElement:
			open = append(open, token.Name.Local)
			if len(open) == 1 && !slices.ContainsFunc(token.Attr, func(a xml.Attr) bool { return a.Name.Local == "viewBox" && strings.HasPrefix(a.Value, "0 0 800 ") }) {
				t.Errorf("%s: its viewBox is not 800 wide", name)
			}
			for _, a := range token.Attr {
				if strings.HasPrefix(a.Name.Local, "on") || a.Name.Local == "href" && !strings.HasPrefix(a.Value, "#") {
					t.Errorf("%s: %s=%q: use nothing from elsewhere, and no scripts", name, a.Name.Local, a.Value)
				}
			}
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			if len(open) > 0 {
				texts[open[len(open)-1]] += string(token)
			}
		}
	}
	for _, element := range []string{"title", "desc", "style"} {
		if strings.TrimSpace(texts[element]) == "" {
			t.Errorf("%s has no <%s>", name, element)
		}
	}
	if _, script := texts["script"]; script || strings.Contains(texts["style"], "@import") {
		t.Errorf("%s: use nothing from elsewhere, and no scripts", name)
	}
	check.Contains(t, texts["style"], "@media (prefers-color-scheme: dark)", name)
	for _, size := range regexp.MustCompile(`font(?:-size)?: *(\d+)px`).FindAllStringSubmatch(texts["style"], -1) {
		if len(size[1]) < 2 || size[1] < "13" {
			t.Errorf("%s: text of %s px, want at least 13", name, size[1])
		}
	}
	return texts["style"]
}
