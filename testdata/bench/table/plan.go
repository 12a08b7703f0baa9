package main

import (
	"regexp"
	"strings"
)

// section is some benchmarks that one command runs, with what was asked for.
type section struct {
	title string
	dir   string // below the repository's top
	bench string // the regular expression of -bench
	times string // -benchtime; empty: go test's own
	count string // -count; empty: 1. Medians of several are taken
	flags []string
	pkgs  []string
	words map[string]string // what a benchmark's name is called; others are called as they are
	asked []ask
}

// args are the arguments of the command go.
func (s section) args() []string {
	args := []string{"test", "-run", "^$", "-bench", s.bench, "-timeout", "60m"}
	if s.times != "" {
		args = append(args, "-benchtime", s.times)
	}
	if s.count != "" {
		args = append(args, "-count", s.count)
	}
	return append(append(args, s.flags...), s.pkgs...)
}

// command is the command as a person types it at the repository's top.
func (s section) command() string {
	var words []string
	for _, arg := range append([]string{"go"}, s.args()...) {
		if strings.ContainsAny(arg, "^$|()*") {
			arg = "'" + arg + "'"
		}
		words = append(words, arg)
	}
	text := strings.Join(words, " ")
	if s.dir != "" {
		text = "cd " + s.dir + " && " + text
	}
	return text
}

// name is what a benchmark is called in the table. Packages that have one of the same name
// are told apart.
func (s section) name(l line) string {
	name, ok := s.words[l.name]
	if !ok {
		name = l.name
	}
	if len(s.pkgs) > 1 {
		name = strings.TrimSuffix(l.pkg, "store") + ": " + name
	}
	return name
}

// ask is what was asked of a figure: of benchmarks whose names match, with their package
// before, at so many at once.
type ask struct {
	name    string // regular expression of PACKAGE/NAME
	atOnce  string // regular expression; empty: any
	unit    string
	atLeast float64 // 0: see atMost
	atMost  float64
}

// asks is what was asked of a benchmark's figure.
func (s section) asks(l line, unit string) (ask, bool) {
	for _, a := range s.asked {
		if a.unit == unit && whole(a.name, l.pkg+"/"+l.name) && (a.atOnce == "" || whole(a.atOnce, l.atOnce)) {
			return a, true
		}
	}
	return ask{}, false
}

// whole reports whether the pattern matches the whole text.
func whole(pattern, text string) bool {
	return regexp.MustCompile("^(?:" + pattern + ")$").MatchString(text)
}

func (a ask) met(value float64) bool {
	if a.atLeast > 0 {
		return value >= a.atLeast
	}
	return value <= a.atMost
}

func (a ask) String() string {
	if a.atLeast > 0 {
		return "at least " + number(a.atLeast)
	}
	return "at most " + number(a.atMost)
}
