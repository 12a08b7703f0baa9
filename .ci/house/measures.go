package main

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// bounds is the file with the most that each measure may be.
const bounds = ".ci/house/bounds"

// A measure is a number of which less is better.
type measure struct {
	name   string
	number int
	detail string // what makes it
}

// measures are those of the product: of all packages but the test kits.
func measures(rooms []*room, t *tree) ([]measure, error) {
	marked := func(mark string) func(*pack) bool {
		return func(p *pack) bool {
			return slices.ContainsFunc(rooms, func(r *room) bool { return r.name == p.path && r.is(mark) })
		}
	}
	product := slices.DeleteFunc(slices.Clone(t.packages), marked("kit"))
	shown := slices.DeleteFunc(slices.Clone(product), func(p *pack) bool { return !marked("shows")(p) })
	doc, err := lines("doc", "-short", "./budget")
	if err != nil {
		return nil, err
	}
	deps, err := lines("list", "-deps", "./budget")
	if err != nil {
		return nil, err
	}
	deps = slices.DeleteFunc(deps, func(name string) bool { return !strings.Contains(name, "toml") && name != "net/http" })
	largest := slices.MaxFunc(product, func(a, b *pack) int { return a.lines() - b.lines() })
	structs := declared(product)
	return []measure{
		// All lines of Go and Lua outside tests, test kits and testdata.
		{"product lines", total(product), ""},
		// Packages that another module can import, the model among them. The aim is eight.
		named("public packages", public(t.packages)),
		// Of the product. The aim is 6,000.
		{"lines of the largest package", largest.lines(), largest.path},
		// Structs with a name. Fields are counted by their names, an embedded one as one. The
		// aim is none.
		named("structs above 20 fields", byNumber(above(structs, 20))),
		// Of Go and Lua, from func to the closing brace, a function within another as part of
		// that. The aim is none.
		named("functions above 80 lines", byNumber(functionsAbove(t, product, 80))),
		// Structs with names that have four names of fields or more in common, whatever their
		// case, which are 60 % or more of the fields of the smaller one.
		named("pairs of structs that share fields", byNumber(twins(structs))),
		// See waits. The aim is two: a room and the model.
		named("rooms that compute a wait", waiting(t.packages)),
		// Those that the table marks with shows.
		{"lines of the rooms that only show answers", total(shown), ""},
		// See references.go.
		backUp(t, product),

		{"lines of go doc -short ./budget", len(doc), ""},
		named("packages that budget imports, directly or not, of TOML and HTTP", deps),
		{"files in jobs without tests", len(packAt(t, "jobs").product()), ""},
		{"lines in cmd/quotactl without tests", packAt(t, "cmd/quotactl").lines(), ""},
		named("test kits outside internal", kitsOutside(t.packages)),
	}, nil
}

// most is how many names a line shows of what makes a measure.
const most = 10

// named is a measure that counts names.
func named(name string, list []string) measure {
	detail := strings.Join(list[:min(most, len(list))], ", ")
	if len(list) > most {
		detail += ", …"
	}
	return measure{name, len(list), detail}
}

// byNumber lists names with their numbers, the highest first.
func byNumber(numbers map[string]int) []string {
	list := slices.SortedFunc(maps.Keys(numbers), func(a, b string) int {
		return cmp.Or(cmp.Compare(numbers[b], numbers[a]), cmp.Compare(a, b))
	})
	for i := range list {
		list[i] += " " + strconv.Itoa(numbers[list[i]])
	}
	return list
}

// compare returns a line for each measure with its bound, and one for each beyond it.
func compare(list []measure, text string) (report, beyond []string, err error) {
	bound := map[string]int{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		number, name, _ := strings.Cut(line, " ")
		if bound[strings.TrimSpace(name)], err = strconv.Atoi(number); err != nil {
			return nil, nil, fmt.Errorf("%s: %q: %w", bounds, line, err)
		}
	}
	for _, m := range list {
		atMost, ok := bound[m.name]
		if delete(bound, m.name); !ok {
			return nil, nil, fmt.Errorf("%s has no line for: %s", bounds, m.name)
		}
		said := fmt.Sprintf("%s: %d (at most %d)", m.name, m.number, atMost)
		if m.detail != "" {
			said += ": " + m.detail
		}
		report = append(report, said)
		if m.number > atMost {
			beyond = append(beyond, fmt.Sprintf("%s: %d, more than %d: make it less, or change its line in %s and say why in the commit", m.name, m.number, atMost, bounds))
		}
	}
	for name := range bound {
		return nil, nil, fmt.Errorf("%s: there is no measure %q", bounds, name)
	}
	return report, beyond, nil
}

// lines runs a go command and returns what it prints.
func lines(args ...string) ([]string, error) {
	out, err := exec.Command("go", args...).Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return strings.Split(string(bytes.TrimSuffix(out, []byte("\n"))), "\n"), nil
}

func total(list []*pack) (sum int) {
	for _, p := range list {
		sum += p.lines()
	}
	return sum
}

func packAt(t *tree, path string) *pack {
	for _, p := range t.packages {
		if p.path == path {
			return p
		}
	}
	return &pack{}
}

func public(list []*pack) (paths []string) {
	for _, p := range list {
		if !p.main() && !slices.Contains(strings.Split(p.path, "/"), "internal") {
			paths = append(paths, p.path)
		}
	}
	return paths
}

func kitsOutside(list []*pack) (paths []string) {
	for _, p := range list {
		if !strings.HasPrefix(p.path, "internal/") && slices.Contains(p.imports(false), "testing") {
			paths = append(paths, p.path)
		}
	}
	return paths
}
