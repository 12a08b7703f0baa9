package presets

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/quotactl/quotactl/internal/suggest"
)

// Compose makes a whole configuration: a store, the named presets, and a sample job in
// comments. Of the operations it keeps those that match only (names or prefix.*), or all
// if only is empty; limits and rules without any operation left are dropped. The error
// names an unknown preset or an operation that no preset has, and those there are.
func Compose(names, only []string) ([]byte, error) {
	var parts []part
	for _, name := range names {
		text, err := Text(name)
		if err != nil {
			return nil, err
		}
		preset := split(string(text))
		if one := slices.IndexFunc(parts, func(p part) bool { return p.table == preset[0].table }); one >= 0 {
			return nil, fmt.Errorf("%s describes the same upstream as another preset: name one of them", name)
		}
		parts = append(parts, preset...)
	}
	if len(only) > 0 {
		var err error
		if parts, err = keep(parts, only); err != nil {
			return nil, err
		}
	}
	text := store
	for _, p := range parts {
		text += p.text
	}
	if len(parts) == 0 {
		return []byte(text), nil
	}
	return []byte(text + "\n" + sample(parts)), nil
}

// store is the beginning of a configuration.
const store = `[store]
url = "sqlite:quotactl.db"   # for one machine; redis://HOST:6379/0 serves many

`

// part is a table of a preset with the comment before it.
type part struct {
	table string   // upstream.youtube.limit.pool
	path  []string // its keys
	text  string
}

var header = lazily(`(?m)^\[([^]]+)\]$`)

// split splits a preset into parts. The text before the first table belongs to the first
// part.
func split(text string) (parts []part) {
	heads := header().FindAllStringSubmatchIndex(text, -1)
	begin := 0
	for i, head := range heads {
		end := len(text)
		if i+1 < len(heads) {
			end = heads[i+1][0]
			if gap := strings.LastIndex(text[:end], "\n\n"); gap > head[0] { // a comment after an empty line belongs to the next table
				end = gap + 1
			}
		}
		table := text[head[2]:head[3]]
		parts = append(parts, part{table, strings.Split(table, "."), text[begin:end]})
		begin = end
	}
	return parts
}

// kind is costs, limit, refusal, report or credential; empty for the upstream itself.
func (p part) kind() string {
	if len(p.path) < 3 {
		return ""
	}
	return p.path[2]
}

var (
	price      = lazily(`^"([^"]+)" *=`)
	operations = lazily(`(?ms)^operations *= \[(.*?)\]\n`)
	name       = lazily(`"([^"]*)"`)
	comment    = lazily(`(?m)^#.*$`)
	ofLimit    = lazily(`(?m)^limit *= "([^"]+)"`)
)

// keep drops the operations that do not match only, and the tables about them.
func keep(parts []part, only []string) (kept []part, err error) {
	found := map[string]bool{}
	var bare []string           // upstreams without an operation that is kept
	var all, unused []string    // the operations of all upstreams, and of the bare ones
	limits := map[string]bool{} // the dropped ones, as upstream.limit
	for _, upstream := range upstreams(parts) {
		priced := map[string]bool{}
		var own []string
		for _, p := range parts {
			if p.path[1] == upstream && p.kind() == "costs" {
				p.text = filter(p.text, func(operation string) bool {
					own = append(own, operation)
					for _, pattern := range only {
						if matches(pattern, operation) {
							found[pattern], priced[operation] = true, true
						}
					}
					return priced[operation]
				})
				blocks := slices.DeleteFunc(strings.SplitAfter(p.text, "\n\n"), func(block string) bool {
					return strings.TrimSpace(comment().ReplaceAllLiteralString(block, "")) == "" // its prices were dropped
				})
				p.text = strings.Join(blocks, "")
				kept = append(kept, p)
			}
		}
		all = append(all, own...)
		if len(priced) == 0 {
			bare, unused = append(bare, upstream), append(unused, own...)
		}
		for _, p := range parts {
			if p.path[1] != upstream || p.kind() == "costs" {
				continue
			}
			if of := ofLimit().FindStringSubmatch(p.text); p.kind() != "limit" && of != nil && limits[upstream+"."+of[1]] {
				continue
			}
			text, left := narrow(p.text, priced)
			if !left {
				if p.kind() == "limit" {
					limits[upstream+"."+p.path[3]] = true
				}
				continue
			}
			p.text = text
			kept = append(kept, p)
		}
	}
	for _, pattern := range only {
		if !found[pattern] {
			return nil, fmt.Errorf("--only %s: no such operation in the preset, which has %s%s", pattern, strings.Join(all, ", "), suggest.DidYouMean(pattern, all))
		}
	}
	if len(bare) > 0 {
		return nil, fmt.Errorf("--only keeps no operation of %s: add one of its operations (%s), or leave that preset out", strings.Join(bare, ", "), strings.Join(unused, ", "))
	}
	return inOrder(kept, parts), nil
}

// filter keeps the prices of the wanted operations. A price may span several lines, until
// its brackets are closed.
func filter(text string, wanted func(operation string) bool) string {
	var left strings.Builder
	open, keep := 0, true
	for line := range strings.Lines(text) {
		if begin := price().FindStringSubmatch(line); open == 0 {
			keep = begin == nil || wanted(begin[1])
		}
		if keep {
			left.WriteString(line)
		}
		value, _, _ := strings.Cut(line, "#")
		open += strings.Count(value, "{") + strings.Count(value, "[") - strings.Count(value, "}") - strings.Count(value, "]")
	}
	return left.String()
}

// upstreams lists the upstreams of the parts, in their order.
func upstreams(parts []part) (names []string) {
	for _, p := range parts {
		if p.kind() == "" {
			names = append(names, p.path[1])
		}
	}
	return names
}

// inOrder sorts the kept parts as they are in all.
func inOrder(kept, all []part) []part {
	at := func(p part) int { return slices.IndexFunc(all, func(one part) bool { return one.table == p.table }) }
	slices.SortFunc(kept, func(a, b part) int { return at(a) - at(b) })
	return kept
}

// narrow keeps those of a table's operations that are priced. False if the table names
// operations and none of them is priced.
func narrow(text string, priced map[string]bool) (string, bool) {
	list := operations().FindStringSubmatch(text)
	if list == nil {
		return text, true
	}
	var left []string
	named := false // false: the list has exceptions ("!name") only
	for _, quoted := range name().FindAllStringSubmatch(list[1], -1) {
		pattern, not := strings.CutPrefix(quoted[1], "!")
		named = named || !not
		for operation := range priced {
			if matches(pattern, operation) {
				left = append(left, `"`+quoted[1]+`"`)
				break
			}
		}
	}
	switch {
	case len(left) == 0 && named:
		return "", false
	case len(left) == 0:
		return operations().ReplaceAllLiteralString(text, ""), true
	}
	return operations().ReplaceAllLiteralString(text, "operations = ["+strings.Join(left, ", ")+"]\n"), true
}

// matches reports whether a pattern, a name or prefix.*, matches an operation.
func matches(pattern, operation string) bool {
	prefix, all := strings.CutSuffix(pattern, "*")
	return pattern == operation || all && strings.HasPrefix(operation, prefix)
}

// sample is a job for the first budget, in comments because programs under quotactl
// meter need no job. Its program is metered as they are.
func sample(parts []part) string {
	budget := ""
	for _, p := range parts {
		if p.kind() == "credential" && budget == "" {
			budget = p.path[1] + "/" + strings.Replace(p.path[3], `"*"`, "main", 1)
		}
	}
	return fmt.Sprintf(`# A job that quotactl run starts. What cron starts needs none: put quotactl meter before it.
# [job.nightly]
# budget   = %q
# schedule = "30 2 * * *"
# command  = ["./nightly.sh"]
# meter    = true
`, budget)
}

// lazily compiles a pattern when it is first used, so that no program pays for what it
// does not need.
func lazily(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}
