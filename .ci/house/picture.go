package main

import (
	"cmp"
	"errors"
	"fmt"
	"html"
	"os"
	"slices"
	"strings"
)

// picture draws the packages that a program may contain as rooms on floors, as SVG: each
// above all that it imports, with the first words of what it is for.
func picture(rooms []*room) (string, error) {
	look, err := style()
	if err != nil {
		return "", err
	}
	floors := map[string]int{}
	levels := map[int][]*room{}
	top := 0
	for _, r := range slices.Backward(rooms) { // what it imports stands below it
		if r.is("kit") && strings.HasPrefix(r.name, "internal/") {
			floors[r.name] = -1
			continue
		}
		floor := 0
		for _, name := range r.rooms {
			floor = max(floor, floors[name]+1)
		}
		floors[r.name], levels[floor], top = floor, append(levels[floor], r), max(top, floor)
	}
	const width, left, box, high, gap = 800, 17, 184, 78, 10
	y := 20
	var body strings.Builder
	for f := top; f >= 0; f-- {
		slices.SortFunc(levels[f], func(a, b *room) int { return cmp.Compare(a.name, b.name) })
		for row := range slices.Chunk(levels[f], 4) {
			x := left + (width-2*left-len(row)*(box+gap)+gap)/2
			for _, r := range row {
				fmt.Fprintf(&body, `<g><rect x="%d" y="%d" width="%d" height="%d" rx="6" class="%s"/><text x="%d" y="%d" class="h">%s</text>`, x, y, box, high, colour(r.name), x+8, y+20, r.name)
				short, _, _ := strings.Cut(strings.ReplaceAll(r.purpose, "`", ""), ";")
				short, _, _ = strings.Cut(short, ":")
				for i, line := range wrap(short, 22, 3) {
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
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" role="img" aria-labelledby="title desc">
<title id="title">The packages of quotactl by floors</title>
<desc id="desc">Each package stands above all that it imports, with the first words of what it is for. The top floor is cmd/quotactl.</desc>
%[3]s
<rect class="paper" x=".5" y=".5" width="%[4]d" height="%[5]d" rx="8"/>
%[6]s</svg>
`, width, y+6, look, width-1, y+5, &body), nil
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

// drawMap puts a row for each room below the heading of the map in CONTRIBUTING.md.
func drawMap(page string, rooms []*room) (string, error) {
	const heading = "\n| room | is for |\n|---|---|\n"
	before, rest, found := strings.Cut(page, heading)
	if !found {
		return "", errors.New("CONTRIBUTING.md has no table with the columns room, is for")
	}
	for strings.HasPrefix(rest, "|") {
		_, rest, _ = strings.Cut(rest, "\n")
	}
	var rows strings.Builder
	for _, r := range rooms {
		fmt.Fprintf(&rows, "| `%s/` | %s |\n", r.name, r.purpose)
	}
	return before + heading + rows.String() + rest, nil
}
