package gateway

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/limit"
)

// owners find the upstream and operation of a request.
type owners struct {
	routes    *budgethttp.Routes // operations are written "upstream operation"
	places    []place
	tunnelled []string // hosts that are never opened
	observed  []place  // are opened instead of the places; "*" is every name. Nil: the places are
}

// place is a host, or what is below a path of it, that an upstream names.
type place struct {
	upstream *config.Upstream
	tunnel   bool // it is never opened
	host     string
	port     int    // 0: 443 and 80
	below    string // the path that begins what it owns, with a slash at its end; empty: it owns none
	whole    bool   // it owns the paths that no other place owns
}

// owned is what a request is.
type owned struct {
	upstream  *config.Upstream // nil: nobody's
	operation string
	label     string // what the wildcard of the upstream's host stands for
	path      string // as it is judged, for the last line
}

// newOwners reads whose request is whose. Hosts in tunnels are never opened.
func newOwners(upstreams []config.Upstream, tunnels []string) (*owners, error) {
	o := &owners{routes: budgethttp.NewRoutes()}
	for i := range upstreams {
		u := &upstreams[i]
		add := func(p place) {
			p.upstream = u
			o.places = append(o.places, p)
		}
		for _, operation := range slices.Sorted(maps.Keys(u.Costs)) {
			for _, pattern := range u.Costs[operation].Match {
				host, err := o.routes.Add(pattern, u.Name+" "+operation)
				if err != nil {
					return nil, fmt.Errorf("upstream %s, operation %s: match %q: %w", u.Name, operation, pattern, err)
				}
				add(place{host: host})
			}
		}
		for _, h := range u.Hosts {
			add(place{host: h.Name, port: h.Port, whole: true})
		}
		for _, base := range u.BaseURLs {
			if base.Scheme == "https" && net.ParseIP(base.Hostname()) != nil && !u.Tunnel {
				return nil, fmt.Errorf("upstream %s: the calls to %s cannot be opened, since certificates are made for names alone: write a name, or tunnel = true", u.Name, base)
			}
			port, _ := strconv.Atoi(base.Port()) // without one: those of the schemes
			add(place{host: budgethttp.HostName(base.Host), port: port, below: strings.TrimSuffix(base.EscapedPath(), "/") + "/"})
		}
	}
	return o, o.addTunnels(tunnels)
}

// addTunnels notes hosts that are never opened. One that no upstream has is an error: it would
// change nothing.
func (o *owners) addTunnels(tunnels []string) error {
	for _, tunnel := range tunnels {
		name := budgethttp.HostName(tunnel)
		isOf := func(p place) bool {
			return budgethttp.Covers([]string{name}, p.host) || budgethttp.Covers([]string{p.host}, name)
		}
		if !slices.ContainsFunc(o.places, isOf) {
			return fmt.Errorf("--tunnel %s: no upstream has this host; those that are opened are %s", tunnel, strings.Join(o.names(), ", "))
		}
		o.tunnelled = append(o.tunnelled, name)
	}
	for i, p := range o.places {
		o.places[i].tunnel = p.upstream.Tunnel || budgethttp.Covers(o.tunnelled, p.host)
	}
	return nil
}

// names are the hosts whose calls are opened, sorted; some begin with "*.", some are addresses.
func (o *owners) names() []string {
	var names []string
	for _, p := range o.opened() {
		if !p.tunnel {
			names = append(names, p.host)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (o *owners) opened() []place {
	if o.observed != nil {
		return o.observed
	}
	return o.places
}

// opens reports whether calls to a host and port are opened.
func (o *owners) opens(host string, port int) bool {
	return slices.ContainsFunc(o.opened(), func(p place) bool {
		return !p.tunnel && p.covers(host, port)
	}) && !budgethttp.Covers(o.tunnelled, host)
}

// tunnels reports whether the user has said that a host is never opened.
func (o *owners) tunnels(host string) bool {
	return budgethttp.Covers(o.tunnelled, host) || slices.ContainsFunc(o.places, func(p place) bool {
		return p.tunnel && budgethttp.Covers([]string{p.host}, host)
	})
}

// covers reports whether a place is at a host and port.
func (p place) covers(host string, port int) bool {
	if p.port == 0 && port != 443 && port != 80 || p.port != 0 && p.port != port {
		return false
	}
	if p.host == "*" && net.ParseIP(host) != nil { // certificates are for names alone
		return false
	}
	return budgethttp.Covers([]string{p.host}, host)
}

// of finds whose a request is. It is judged as it was sent and as a server may read it, with
// escapes decoded and dots resolved, and with any method that it may stand for: the dearest
// decides, because nobody knows which of them the upstream follows.
func (o *owners) of(req *http.Request, host string, port int) owned {
	var found owned
	for _, at := range readings(req.URL) {
		for _, method := range o.methods(req, host, port) {
			one := o.one(method, host, port, at)
			if found.upstream == nil || one.upstream != nil && one.price() > found.price() {
				found = one
			}
		}
	}
	found.path = path.Clean("/" + req.URL.Path)
	return found
}

// readings are the ways in which a server may read a path.
func readings(sent *url.URL) []*url.URL {
	before, _, _ := strings.Cut(sent.Path, "#")
	parts := strings.Split(strings.ReplaceAll(before, `\`, "/"), "/")
	for i := range parts {
		parts[i], _, _ = strings.Cut(parts[i], ";") // what follows are parameters to some servers
	}
	decoded := path.Clean("/" + strings.Join(parts, "/"))
	list := []*url.URL{{Path: sent.Path, RawPath: sent.RawPath}}
	if decoded != "/" && strings.HasSuffix(sent.Path, "/") {
		list = append(list, &url.URL{Path: decoded + "/"})
	}
	if one := (&url.URL{Path: decoded}); one.EscapedPath() != sent.EscapedPath() {
		list = append(list, one)
	}
	return list
}

// methods are those that a request may stand for.
func (o *owners) methods(req *http.Request, host string, port int) []string {
	named := strings.ToUpper(req.Header.Get("X-Http-Method-Override"))
	if named == "" || named == req.Method {
		return []string{req.Method}
	}
	for _, p := range o.places {
		if p.upstream.MethodOverride && p.covers(host, port) && req.Method == http.MethodPost {
			return []string{named}
		}
	}
	return []string{req.Method, named}
}

// one finds whose a request of one method and path is.
func (o *owners) one(method, host string, port int, at *url.URL) owned {
	if text, ok := o.routes.Operation(&http.Request{Method: method, Host: host, URL: at}); ok {
		name, operation, _ := strings.Cut(text, " ")
		for _, p := range o.places { // patterns name no port
			if p.upstream.Name == name && p.covers(host, port) {
				return o.owned(p.upstream, host, operation)
			}
		}
	}
	if isTokenEndpoint(method, at.Path) {
		return owned{}
	}
	var found owned
	length := -1
	for _, p := range o.places {
		if n := p.owns(host, port, at.EscapedPath()); n > length {
			found, length = o.owned(p.upstream, host, budgethttp.Unmatched), n
		}
	}
	return found
}

// isTokenEndpoint reports whether a request asks for an OAuth token, which no quota counts. A
// pattern may say otherwise.
func isTokenEndpoint(method, path string) bool {
	return method == http.MethodPost && strings.Contains(path, "/oauth") && strings.HasSuffix(path, "token")
}

// meters reports whether calls to an upstream are metered.
func (o *owners) meters(upstream string) bool {
	return slices.ContainsFunc(o.places, func(p place) bool { return p.upstream.Name == upstream && !p.tunnel })
}

// owns is how specific a place's claim to a path is; -1: it has none.
func (p place) owns(host string, port int, escaped string) int {
	switch {
	case !p.covers(host, port):
	case p.below != "" && strings.HasPrefix(escaped+"/", p.below):
		return 1<<16 + len(p.below)
	case p.whole && p.host == host:
		return 1 << 15
	case p.whole:
		return len(p.host)
	}
	return -1
}

func (o *owners) owned(upstream *config.Upstream, host, operation string) owned {
	found := owned{upstream: upstream, operation: operation}
	for _, p := range o.places {
		parent, isBelow := strings.CutPrefix(p.host, "*")
		if label, ok := strings.CutSuffix(host, parent); ok && isBelow && label != "" && p.upstream == upstream {
			found.label = label
		}
	}
	return found
}

// has reports whether a budget is one of the upstream's.
func (w owned) has(budget string) bool { return strings.HasPrefix(budget, w.upstream.Name+"/") }

// price orders operations by their cost. An operation without a price comes last: its calls are
// refused, which costs the caller most.
func (w owned) price() int64 {
	if w.upstream == nil {
		return -1
	}
	if cost, priced := w.upstream.Costs[w.operation]; priced {
		return cost.Units
	}
	if w.upstream.Unknown.Allowed {
		return w.upstream.Unknown.Units
	}
	return limit.MaxUnits + 1
}
