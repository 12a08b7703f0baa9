package draft

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/internal/presets"
)

// Config is a costs.toml of what was seen: the presets, and an upstream for each other host. It is
// nil if there is nothing to write.
func (l *Log) Config() ([]byte, error) {
	var used []string
	unpriced := map[string]bool{} // presets that lack an operation
	taken := map[string]bool{}
	for _, h := range l.Hosts() {
		for _, kind := range h.Kinds() {
			unpriced[kind.Preset] = unpriced[kind.Preset] || kind.Operation == budgethttp.Unmatched
			if kind.Preset != "" && !taken[kind.Preset] {
				used, taken[kind.Preset] = append(used, kind.Preset), true
			}
		}
	}
	slices.Sort(used)
	whole, err := presets.Compose(used, nil)
	if err != nil {
		return nil, err
	}
	text, n := "# quotactl meter --observe has drafted this. Fill in what the comments say.\n\n"+strings.TrimRight(string(whole), "\n")+"\n", len(used)
	for _, name := range used {
		text = withOneCredential(text, name)
		if head := "[upstream." + name + "]\nunknown_operation = "; unpriced[name] {
			text = strings.Replace(text, head+`"refuse"`, head+"1 # to fill in: calls were seen that have no operation below", 1)
		}
	}
	for _, h := range l.Hosts() {
		kinds := slices.DeleteFunc(h.Kinds(), func(k Kind) bool { return k.Preset != "" || k.Token })
		if len(kinds) > 0 && h.Name != "others" {
			text += "\n" + h.table(unique(upstreamName(h.Name), taken), kinds)
			n++
		}
	}
	if n == 0 {
		return nil, nil
	}
	return []byte(text), nil
}

// withOneCredential gives a preset one credential if its requests do not say which of several they
// use: else meter would ask for --budget.
func withOneCredential(text, preset string) string {
	if own, _ := presets.Text(preset); strings.Contains(string(own), "\nhosts             = [\"*.") {
		return text
	}
	return strings.ReplaceAll(text, "[upstream."+preset+`.credential."*"]`, "[upstream."+preset+".credential.main]")
}

// upstreamName makes a name of a host.
func upstreamName(host string) string {
	name := strings.TrimPrefix(strings.TrimPrefix(budgethttp.HostName(host), "www."), "api.")
	if at := strings.LastIndex(name, "."); at > 0 {
		name = name[:at]
	}
	return nameOf(strings.ReplaceAll(name, ".", "-"))
}

// nameOf makes a text a name in costs.toml, with room for a number.
func nameOf(text string) string {
	text = strings.Map(func(r rune) rune {
		if strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789.-_", r) {
			return r
		}
		return '-'
	}, strings.ToLower(text))
	return strings.TrimLeft(text[:min(len(text), 58)], ".-_")
}

// unique gives a name a number if it is taken, and takes it.
func unique(name string, taken map[string]bool) string {
	one := name
	for n := 2; one == "" || taken[one]; n++ {
		one = fmt.Sprintf("%s-%d", name, n)
	}
	taken[one] = true
	return one
}

// table is the upstream of a host, with operations for some kinds of its calls.
func (h *Host) table(name string, kinds []Kind) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	calls := 0
	for _, kind := range kinds {
		calls += h.Rows[kind].Calls
	}
	line("# Calls that were seen to %s: %d.\n[upstream.%s]", h.Name, calls, name)
	if h.Plain {
		line("base_url = %q", "http://"+h.Name)
	} else {
		line("hosts = [%q]", h.Name)
	}
	line("unknown_operation = 1 # for paths that were not seen")
	places := h.Credentials()
	at := slices.IndexFunc(places, func(p Place) bool { return p.Text == "" && p.Header != "Cookie" })
	if at >= 0 {
		line("secret = { %s }", places[at].toml())
	}
	line("\n# To fill in: what each costs, if it is not 1.\n[upstream.%s.costs]", name)
	h.costs(kinds, line)
	quota, window, why := h.limit(int64(calls))
	line("\n# %s\n[upstream.%s.limit.calls]\nquota = %d\nwindow = %q", why, name, quota, window)
	if len(h.Variables) > 1 {
		line("\n# Each has a quota of its own, as if each were of another account.")
		taken := map[string]bool{}
		for _, variable := range h.Variables {
			line("[upstream.%s.credential.%s]\nsecret_env = %q", name, unique(nameOf(variable), taken), variable)
		}
		return b.String()
	}
	line("\n[upstream.%s.credential.main]", name)
	switch {
	case len(h.Variables) == 1:
		line("secret_env = %q", h.Variables[0])
	case at >= 0:
		line("secret_env = %q # to fill in: the variable with the credential", strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(name))+"_KEY")
	}
	return b.String()
}

// toml is the place as secret has it.
func (p Place) toml() string {
	switch {
	case p.Query != "":
		return fmt.Sprintf("query = %q", p.Query)
	case p.Prefix != "":
		return fmt.Sprintf("header = %q, prefix = %q", p.Header, p.Prefix)
	}
	return fmt.Sprintf("header = %q", p.Header)
}

// mostOperations bounds the operations of an upstream: a ledger knows 255.
const mostOperations = 200

// fewest is how many patterns that differ in one part may be one.
const fewest = 4

// costs writes the operations. A pattern that conflicts with another is left to unknown_operation.
func (h *Host) costs(kinds []Kind, line func(format string, args ...any)) {
	routes, names, done := budgethttp.NewRoutes(), map[string]bool{}, map[string]bool{}
	alike := map[string]int{}
	var said []string
	for _, kind := range kinds {
		method, parts := kind.Method, strings.Split(kind.Path, "/")
		if method == http.MethodHead {
			method = http.MethodGet // whose pattern fits both
		}
		if method != strings.ToUpper(method) {
			method = "" // as patterns have no small letters
		}
		pattern := patternOf(method, h.Name, parts)
		if kind.Path == "…" || done[pattern] {
			continue
		}
		done[pattern] = true
		if len(names) == mostOperations {
			line("# There are more kinds of calls than can be told apart here: these go by unknown_operation.")
			break
		}
		if _, err := routes.Add(pattern, ""); err != nil {
			said = append(said, "# also seen, but no pattern beside these: "+pattern)
			continue
		}
		line("%q = { units = 1, match = %q }", unique(nameOf(strings.Trim(method+strings.NewReplacer("/", ".", "{", "", "}", "").Replace(kind.Path), ".")), names), pattern)
		for i, part := range parts {
			if part == "" || strings.Contains(part, id) {
				continue
			}
			other := slices.Clone(parts)
			other[i] = id
			text := patternOf(method, h.Name, other)
			if alike[text]++; alike[text] == fewest {
				said = append(said, "# perhaps one: "+text)
			}
		}
	}
	for _, text := range said {
		line("%s", text)
	}
}

// patternOf is the pattern of a method and a folded path, where a part is a wildcard or none.
func patternOf(method, host string, parts []string) string {
	text, n := strings.TrimSpace(method+" "+budgethttp.HostName(host)), 0
	for i, part := range parts[1:] {
		switch {
		case strings.Contains(part, id):
			if n++; n > 1 {
				part = fmt.Sprintf("{id%d}", n)
			} else {
				part = id
			}
		case part == "" && i == len(parts)-2:
			part = "{$}"
		}
		text += "/" + part
	}
	return text
}

// limit is the quota and window of a host, and where they are from. It lets the calls that were seen
// through.
func (h *Host) limit(calls int64) (quota int64, window, why string) {
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(h.Limits[name], 10, 64) // 0 is as absent
		return n
	}
	for _, said := range [][2]string{{"Ratelimit-Policy q", "Ratelimit-Policy w"}, {"X-Ratelimit-Limit"}, {"Ratelimit-Limit"}, {"X-Rate-Limit-Limit"}} {
		quota, seconds := number(said[0]), number(said[1])
		switch {
		case quota*max(1, int64(len(h.Variables))) < calls || quota > 1e12: // each credential has it
		case seconds > 0 && seconds < 1e6:
			return quota, fmt.Sprintf("%ds", seconds), fmt.Sprintf("Answers said so: %s=%d, w=%d.", said[0], quota, seconds)
		case said[1] == "":
			return quota, "1h", fmt.Sprintf("Answers said %s: %d. To fill in: for how long; an hour is a guess.", said[0], quota)
		}
	}
	for quota = 1000; quota < 10*calls; {
		quota *= 10
	}
	return quota, "24h", "To fill in: the API's true quota. This one is a placeholder, far above what was seen."
}
