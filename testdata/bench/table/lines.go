package main

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// line is what one benchmark measured: the medians, if it ran more than once.
type line struct {
	pkg    string // the last part of the package's path
	name   string // without Benchmark and without the number of processors
	atOnce string // how many call at once, if the name says it; it is not in name then
	units  []string
	values map[string]float64
}

// callers are the parts of a name that say how many call at once.
var callers = regexp.MustCompile(`(?:^|/)(?:goroutines|processes|connections|waiters)=(\d+)(/|$)`)

// parse reads the output of go test -bench, in its order.
func parse(out io.Reader) ([]line, error) {
	type key struct{ pkg, name, atOnce string }
	var lines []line
	at, all := map[key]int{}, map[key]map[string][]float64{}
	reader := benchfmt.NewReader(out, "go test")
	for reader.Scan() {
		result, ok := reader.Result().(*benchfmt.Result)
		if !ok {
			continue
		}
		k := key{pkg: last(result.GetConfig("pkg"))}
		k.name, k.atOnce = named(result.Name)
		if _, known := at[k]; !known {
			at[k], all[k] = len(lines), map[string][]float64{}
			lines = append(lines, line{pkg: k.pkg, name: k.name, atOnce: k.atOnce, values: map[string]float64{}})
		}
		l := &lines[at[k]]
		for _, v := range result.Values {
			unit, value := v.Unit, v.Value
			if v.OrigUnit != "" { // the reader has made seconds of ns
				unit, value = v.OrigUnit, v.OrigValue
			}
			if !slices.Contains(l.units, unit) {
				l.units = append(l.units, unit)
			}
			all[k][unit] = append(all[k][unit], value)
		}
	}
	if err := reader.Err(); err != nil {
		return nil, fmt.Errorf("read the benchmarks: %w", err)
	}
	for k, i := range at {
		for unit, list := range all[k] {
			lines[i].values[unit] = median(list)
		}
	}
	return lines, nil
}

// named splits a benchmark's name from how many call at once.
func named(name benchfmt.Name) (rest, atOnce string) {
	base, parts := name.Parts()
	rest = string(base)
	for i, part := range parts {
		if i == len(parts)-1 && strings.HasPrefix(string(part), "-") { // GOMAXPROCS
			break
		}
		rest += string(part)
	}
	if found := callers.FindStringSubmatchIndex(rest); found != nil {
		atOnce = rest[found[2]:found[3]]
		rest = strings.TrimSuffix(rest[:found[0]]+"/"+rest[found[1]:], "/")
	}
	return rest, atOnce
}

func last(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

func median(list []float64) float64 {
	slices.SortFunc(list, cmp.Compare[float64])
	return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
}
