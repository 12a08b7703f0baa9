package main

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// table is the file with a line for each room; it says how to write one.
const table = ".ci/house/rooms"

// A room is a package, as its line in the table has it.
type room struct {
	name      string // the path in the module
	marks     []string
	purpose   string
	rooms     []string // what it may import, by path in the module
	libraries []string // and of other modules, as depguard takes it: with $ only the package itself
}

func (r *room) is(mark string) bool { return slices.Contains(r.marks, mark) }

// mayImport reports whether the line of a room lets it import a package.
func (r *room) mayImport(module, name string) bool {
	if inside, ok := strings.CutPrefix(name, module+"/"); ok {
		return slices.Contains(r.rooms, inside) || r.is("tests") && inside == r.name // an outer test imports its own package
	}
	first, _, _ := strings.Cut(name, "/")
	isStandard := !strings.Contains(first, ".") && name != "C"
	return isStandard || slices.ContainsFunc(r.libraries, func(library string) bool { return isOf(name, library) })
}

// isOf reports whether a package is of a library, as the table names it.
func isOf(name, library string) bool {
	alone, exact := strings.CutSuffix(library, "$")
	return name == alone || !exact && strings.HasPrefix(name, library+"/")
}

// readRooms reads the table.
func readRooms(text string) (rooms []*room, err error) {
	short := map[string]string{}
	var imports [][]string
	for i, line := range strings.Split(text, "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		columns := strings.Split(line, "|")
		if len(columns) != 4 {
			return nil, fmt.Errorf("%s:%d: %d columns, not 4", table, i+1, len(columns))
		}
		r := &room{name: strings.TrimSpace(columns[0]), marks: strings.Fields(columns[1]), purpose: strings.TrimSpace(columns[2])}
		for _, mark := range r.marks {
			if !slices.Contains([]string{"kit", "shows", "tests"}, mark) {
				return nil, fmt.Errorf("%s:%d: there is no mark %s", table, i+1, mark)
			}
		}
		name := path.Base(r.name)
		if short[name] != "" {
			return nil, fmt.Errorf("%s:%d: %s is the short name of %s, too", table, i+1, name, short[name])
		}
		short[name] = r.name
		rooms, imports = append(rooms, r), append(imports, strings.Fields(columns[3]))
	}
	for i, r := range rooms {
		for _, name := range imports[i] {
			switch {
			case strings.Contains(name, "."):
				r.libraries = append(r.libraries, name)
			case short[name] != "":
				r.rooms = append(r.rooms, short[name])
			default:
				return nil, fmt.Errorf("%s: %s may import %s, which is no room", table, r.name, name)
			}
		}
	}
	return rooms, nil
}

// faults lists what is wrong with the table beside the packages. It reads the files of every
// system and tag; depguard, see layers, those that are built here.
func faults(rooms []*room, t *tree) (list []string) {
	fault := func(format string, args ...any) { list = append(list, table+": "+fmt.Sprintf(format, args...)) }
	floor := map[string]int{}
	for i, r := range rooms {
		floor[r.name] = i
	}
	for _, p := range t.packages {
		if _, ok := floor[p.path]; !ok {
			fault("%s has no line: add one, above all that it imports and below all that import it, such as: %s | | what it is for |", p.path, p.path)
		}
	}
	for i, r := range rooms {
		at := slices.IndexFunc(t.packages, func(p *pack) bool { return p.path == r.name })
		if at < 0 {
			fault("there is no package %s", r.name)
			continue
		}
		if !r.is("kit") && slices.Contains(t.packages[at].imports(false), "testing") {
			fault("%s imports testing, but is not marked kit", r.name)
		}
		imports := t.packages[at].imports(r.is("tests"))
		for _, name := range imports {
			if !r.mayImport(t.module, name) {
				fault("%s imports %s, which its line does not name: name it there if it stands below, or move the code", r.name, name)
			}
		}
		for _, name := range r.rooms {
			switch to := floor[name]; {
			case to <= i:
				fault("%s may import %s, which does not stand below it", r.name, name)
			case rooms[to].is("kit") && !r.is("kit") && slices.Contains(t.packages[at].imports(false), t.module+"/"+name):
				fault("%s imports %s, a test kit", r.name, name)
			}
			if !slices.Contains(imports, t.module+"/"+name) {
				fault("%s may import %s, and does not", r.name, name)
			}
		}
		for _, name := range r.libraries {
			if !slices.ContainsFunc(imports, func(one string) bool { return isOf(one, name) }) {
				fault("%s may import %s, and does not", r.name, name)
			}
		}
	}
	return list
}
