package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"time"
)

//go:embed assets/page.css assets/page.js assets/icon.svg
var assetFiles embed.FS

//go:embed templates/*.html
var templateFiles embed.FS

// asset is a file that pages load.
type asset struct {
	media, tag string
	content    []byte
}

var media = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

func readAssets() map[string]asset {
	found := map[string]asset{}
	names, err := fs.Glob(assetFiles, "assets/*")
	for _, name := range names {
		content, failed := assetFiles.ReadFile(name)
		if failed != nil {
			err = failed
		}
		sum := sha256.Sum256(content)
		found["/"+name] = asset{media[path.Ext(name)], hex.EncodeToString(sum[:8]), content}
	}
	if err != nil {
		panic(err) // not possible: they are embedded
	}
	return found
}

// serve serves the file. Its address on a page has its hash, so that an old one is not used.
func (a asset) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", a.media)
	h.Set("ETag", `"`+a.tag+`"`)
	h.Set("Cache-Control", "max-age=300")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(a.content))
}

// readTemplates reads the template of each page, with the layout and the parts that all share.
func readTemplates(assets map[string]asset) map[string]*template.Template {
	functions := template.FuncMap{
		"asset": func(name string) string { return "/assets/" + name + "?" + assets["/assets/"+name].tag },
		"shown": shown, "stamp": stamp, "count": count, "text": text, "prose": prose, "ago": ago, "plural": plural, "outcome": outcomeName,
		"clock": clock, "lines": lines, "pair": newPair, "rows": newRunTable, "marks": func() []choice { return legendOfMarks },
	}
	names, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil {
		panic(err) // not possible: the pattern is right
	}
	found := map[string]*template.Template{}
	for _, name := range names {
		base := path.Base(name)
		if base == "layout.html" || base == "parts.html" {
			continue
		}
		one := template.Must(template.New(base).Funcs(functions).ParseFS(templateFiles, "templates/layout.html", "templates/parts.html", name))
		found[base[:len(base)-len(".html")]] = one
	}
	return found
}

// pair hands two values to a part of a page.
type pair struct{ A, B any }

func newPair(a, b any) pair { return pair{a, b} }

// runTable is a table of runs; Jobs: it says of which job each is.
type runTable struct {
	Rows []runRow
	Jobs bool
}

func newRunTable(rows []runRow, jobs bool) runTable { return runTable{rows, jobs} }
