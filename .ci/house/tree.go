package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A tree is the source of a module: its packages without testdata and .ci, by path.
type tree struct {
	module   string
	fset     *token.FileSet
	packages []*pack
}

// A pack is a package: a folder with Go in it, and the Lua beside.
type pack struct {
	path  string // within the module
	files []*file
}

type file struct {
	path  string
	test  bool
	lines int
	// syntax is nil of Lua, and of a test only its imports.
	syntax *ast.File
	text   []byte
	// built is whether the file is part of a build for Linux.
	built bool
}

// sources lists the Go and Lua files that git tracks or would track.
func sources() ([]string, error) {
	out, err := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate", "*.go", "*.lua").Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"), nil
}

// parse reads the files of a module, by their paths in it.
func parse(module string, from fs.FS, names []string) (*tree, error) {
	t := &tree{module: module, fset: token.NewFileSet()}
	linux := build.Context{GOOS: "linux", GOARCH: "amd64", Compiler: "gc", ReleaseTags: build.Default.ReleaseTags, JoinPath: path.Join,
		OpenFile: func(name string) (io.ReadCloser, error) { return from.Open(name) }}
	folders := map[string]*pack{}
	for _, name := range names {
		if slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool { return part == "testdata" || part[0] == '.' || part[0] == '_' }) {
			continue
		}
		text, err := fs.ReadFile(from, name)
		if errors.Is(err, fs.ErrNotExist) { // removed, but git still tracks it
			continue
		} else if err != nil {
			return nil, err
		}
		f := &file{path: name, text: text, lines: bytes.Count(text, []byte("\n")), test: strings.HasSuffix(name, "_test.go")}
		if path.Ext(name) == ".go" {
			mode := parser.SkipObjectResolution
			if f.test {
				mode |= parser.ImportsOnly
			}
			if f.syntax, err = parser.ParseFile(t.fset, name, text, mode); err != nil {
				return nil, err
			}
			if f.built, err = linux.MatchFile(path.Dir(name), path.Base(name)); err != nil {
				return nil, err
			}
		}
		p := folders[path.Dir(name)]
		if p == nil {
			p = &pack{path: path.Dir(name)}
			folders[p.path], t.packages = p, append(t.packages, p)
		}
		p.files = append(p.files, f)
	}
	t.packages = slices.DeleteFunc(t.packages, func(p *pack) bool {
		return !slices.ContainsFunc(p.files, func(f *file) bool { return f.syntax != nil })
	})
	slices.SortFunc(t.packages, func(a, b *pack) int { return strings.Compare(a.path, b.path) })
	return t, nil
}

// product are the files of a package that are not tests.
func (p *pack) product() []*file {
	return slices.DeleteFunc(slices.Clone(p.files), func(f *file) bool { return f.test })
}

func (p *pack) lines() (sum int) {
	for _, f := range p.product() {
		sum += f.lines
	}
	return sum
}

// main reports whether a package is a command.
func (p *pack) main() bool {
	return slices.ContainsFunc(p.product(), func(f *file) bool { return f.syntax != nil && f.syntax.Name.Name == "main" })
}

// imports lists what the package imports, with its tests or without.
func (p *pack) imports(tests bool) (list []string) {
	for _, f := range p.files {
		if f.syntax == nil || f.test && !tests {
			continue
		}
		for _, one := range f.syntax.Imports {
			name, _ := strconv.Unquote(one.Path.Value) // the parser has checked it
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}
