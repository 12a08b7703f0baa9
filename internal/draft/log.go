package draft

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// most bounds how many kinds of calls are kept apart.
const most = 1000

// Log notes calls. It is safe for concurrent use, and returns no secret.
type Log struct {
	variables map[string]string // names by value

	mu    sync.Mutex // guards the rest
	hosts map[string]*Host
	rows  int
}

// Host is what was seen of one host.
type Host struct {
	Name      string // with a port that is not usual
	Plain     bool   // http
	Rows      map[Kind]*Row
	Places    map[Place]int     // calls by where they had a credential
	Limits    map[string]string // the last numbers of answers, by header
	Variables []string          // of the environment, with its credentials, in order
}

// Kind is what calls have in common.
type Kind struct {
	Path, Method      string // folded, or as the preset's pattern has it
	Preset, Operation string // empty: no preset has it
	Token             bool   // it asks for an OAuth token, which no quota counts
}

// Row is calls of one kind.
type Row struct {
	Calls   int
	Answers map[string]int // by class, as "2xx"; "429" is one of its own, and so is "none"
}

// Place is where a credential was: in a header after a prefix, in the query, or as Text says.
type Place struct{ Header, Prefix, Query, Text string }

// String names the place for people.
func (p Place) String() string {
	if p.Query != "" {
		return "query " + p.Query
	}
	return strings.TrimSpace(p.Text + p.Header + " " + p.Prefix)
}

// NewLog returns a Log for a program that runs with an environment, as os.Environ has it.
func NewLog(env []string) *Log {
	l := &Log{variables: map[string]string{}, hosts: map[string]*Host{}}
	for _, entry := range env {
		if name, value, _ := strings.Cut(entry, "="); len(value) >= 8 && secretName().MatchString(name) {
			l.variables[value] = name
		}
	}
	return l
}

// Call notes a request to a host, which may have a port, and returns what takes its answer;
// status 0: there was none. Without a path in the kind, the request's is folded.
func (l *Log) Call(scheme, host string, kind Kind, req *http.Request) func(status int, header http.Header) {
	if !hostForm().MatchString(host) {
		host = "others"
	}
	places := l.carried(req)
	if kind.Path == "" {
		secrets := slices.DeleteFunc(slices.Collect(maps.Values(places)), func(v string) bool { return len(v) < 6 })
		kind.Path = Fold(req.URL.EscapedPath(), slices.AppendSeq(secrets, maps.Keys(l.variables)))
	}
	if kind.Method = req.Method; !methodForm().MatchString(kind.Method) {
		kind.Method = ""
	}
	return func(status int, header http.Header) {
		l.mu.Lock()
		defer l.mu.Unlock()
		h := l.hosts[host]
		if h == nil {
			h = &Host{Name: host, Plain: scheme == "http", Rows: map[Kind]*Row{}, Places: map[Place]int{}, Limits: map[string]string{}}
			l.hosts[host] = h
		}
		row := h.Rows[kind]
		if row == nil && l.rows >= most {
			kind = Kind{Path: "…"}
			row = h.Rows[kind]
		}
		if row == nil {
			row, l.rows = &Row{Answers: map[string]int{}}, l.rows+1
			h.Rows[kind] = row
		}
		row.Calls++
		for place, value := range places {
			h.Places[place]++
			if name := l.variables[value]; name != "" && !slices.Contains(h.Variables, name) {
				h.Variables = append(h.Variables, name)
				slices.Sort(h.Variables)
			}
		}
		row.answered(status)
		h.hear(header)
	}
}

func (r *Row) answered(status int) {
	switch status {
	case 0:
		r.Answers["none"]++
	case http.StatusTooManyRequests:
		r.Answers["429"]++
	default:
		r.Answers[fmt.Sprintf("%dxx", status/100)]++
	}
}

// Hosts are those that were called, sorted. The log takes no more then.
func (l *Log) Hosts() (list []*Host) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(l.hosts)) {
		list = append(list, l.hosts[name])
	}
	return list
}

// Kinds are those of the host's calls, sorted.
func (h *Host) Kinds() []Kind {
	return slices.SortedFunc(maps.Keys(h.Rows), func(a, b Kind) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.Method, b.Method), strings.Compare(a.Operation, b.Operation))
	})
}

// Credentials are the places of credentials, the most frequent one first.
func (h *Host) Credentials() []Place {
	return slices.SortedFunc(maps.Keys(h.Places), func(a, b Place) int {
		return cmp.Or(h.Places[b]-h.Places[a], strings.Compare(a.String(), b.String()))
	})
}
