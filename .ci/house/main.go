// Command house draws the packages of this module as rooms on floors, as SVG. Each
// package is above all that it imports, with the first words of its doc.
//
//	go run ./.ci/house >docs/house.svg
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// room is a package, as go list reports it.
type room struct {
	ImportPath, Doc string
	Imports         []string

	name  string // the path within the module
	floor int
}

func main() {
	if err := draw(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "draw the house:", err)
		os.Exit(1)
	}
}

func draw(to io.Writer) error {
	look, err := style()
	if err != nil {
		return err
	}
	rooms, err := list()
	if err != nil {
		return err
	}
	floors := map[int][]*room{}
	top := 0
	for _, r := range rooms {
		raise(r, rooms)
	}
	for _, r := range rooms {
		floors[r.floor] = append(floors[r.floor], r)
		top = max(top, r.floor)
	}
	const width, left, box, high, gap = 800, 17, 184, 78, 10
	y := 20
	var body strings.Builder
	for f := top; f >= 0; f-- {
		slices.SortFunc(floors[f], func(a, b *room) int { return cmp.Compare(a.name, b.name) })
		for row := range slices.Chunk(floors[f], 4) {
			x := left + (width-2*left-len(row)*(box+gap)+gap)/2
			for _, r := range row {
				fmt.Fprintf(&body, `<g><rect x="%d" y="%d" width="%d" height="%d" rx="6" class="%s"/><text x="%d" y="%d" class="h">%s</text>`, x, y, box, high, colour(r.name), x+8, y+20, r.name)
				for i, line := range wrap(saying(r), 22, 3) {
					fmt.Fprintf(&body, `<text x="%d" y="%d" class="s">%s</text>`, x+8, y+38+16*i, html.EscapeString(line))
				}
				body.WriteString("</g>\n")
				x += box + gap
			}
			y += high + 6
		}
		fmt.Fprintf(&body, `<line x1="%d" y1="%d" x2="%d" y2="%d" class="line"/>`+"\n", left, y+4, width-left, y+4)
		y += 14
	}
	_, err = fmt.Fprintf(to, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" role="img" aria-labelledby="title desc">
<title id="title">The packages of quotactl by floors</title>
<desc id="desc">Each package stands above all that it imports, with the first words of its doc. The top floor is cmd/quotactl.</desc>
%[3]s
<rect class="paper" x=".5" y=".5" width="%[4]d" height="%[5]d" rx="8"/>
%[6]s</svg>
`, width, y+6, look, width-1, y+5, &body)
	return err
}

// list returns the packages that a program of this module may contain: no test kits, and
// no tests.
func list() (map[string]*room, error) {
	command := exec.Command("go", "list", "-json=ImportPath,Doc,Imports,Module", "./...")
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		return nil, err
	}
	rooms := map[string]*room{}
	for from := json.NewDecoder(strings.NewReader(string(out))); ; {
		var r struct {
			room
			Module struct{ Path string }
		}
		if err := from.Decode(&r); errors.Is(err, io.EOF) {
			return rooms, nil
		} else if err != nil {
			return nil, err
		}
		one := r.room
		one.name = strings.TrimPrefix(one.ImportPath, r.Module.Path+"/")
		if !slices.Contains(one.Imports, "testing") && one.name != "internal/simulate" {
			rooms[one.ImportPath] = &one
		}
	}
}

// raise puts a room one floor above the highest room that it imports.
func raise(r *room, rooms map[string]*room) int {
	for _, path := range r.Imports {
		if below := rooms[path]; below != nil {
			r.floor = max(r.floor, raise(below, rooms)+1)
		}
	}
	return r.floor
}

// saying is the beginning of a package's doc, without the package's name.
func saying(r *room) string {
	words := strings.Fields(r.Doc)
	if len(words) < 3 {
		return ""
	}
	text := strings.TrimPrefix(strings.Join(words[2:], " "), "is ")
	if end := strings.IndexAny(text, ":;"); end >= 0 {
		text = text[:end]
	}
	return strings.TrimSuffix(text, ".")
}

// wrap breaks a text into lines of up to most characters, and cuts it after the last.
func wrap(text string, most, lines int) []string {
	list := []string{""}
	for _, word := range strings.Fields(text) {
		last := &list[len(list)-1]
		switch {
		case *last == "":
			*last = word
		case len(*last)+1+len(word) <= most:
			*last += " " + word
		case len(list) == lines:
			*last += " …"
			return list
		default:
			list = append(list, word)
		}
	}
	return list
}

// colour tells the wings of the house apart, by a class of the style.
func colour(name string) string {
	wing, _, _ := strings.Cut(name, "/")
	return map[string]string{"budget": "blue", "jobs": "green", "cmd": "amber", "lua": "red", "internal": "box"}[wing]
}

// style is what all pictures of the documentation have, read from one of them.
func style() (string, error) {
	picture, err := os.ReadFile("docs/pictures/parts.svg")
	if err != nil {
		return "", err
	}
	_, rest, _ := strings.Cut(string(picture), "<style>")
	text, _, found := strings.Cut(rest, "</style>")
	if !found {
		return "", errors.New("docs/pictures/parts.svg has no style")
	}
	return "<style>" + text + "</style>", nil
}
