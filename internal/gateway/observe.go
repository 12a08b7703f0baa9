package gateway

import (
	"net/http"
	"strings"

	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/draft"
)

// Observation makes a gateway note calls, and charge and refuse none.
type Observation struct {
	Log *draft.Log
	// Hosts are opened: the places of these upstreams, or with All every name at the usual ports.
	// If there are none, the hosts of the gateway's configuration are.
	Hosts []config.Upstream
	All   bool
}

// observe makes the owners open what is observed. They still say which upstream has a request.
func (o *owners) observe(by *Observation, tunnels []string) error {
	hosts, err := newOwners(by.Hosts, nil)
	if err != nil {
		return err
	}
	if o.observed = hosts.places; by.All {
		o.observed = append(o.observed, place{host: "*"})
	}
	if len(o.observed) == 0 {
		o.observed = o.places
	}
	for _, tunnel := range tunnels {
		o.tunnelled = append(o.tunnelled, budgethttp.HostName(tunnel))
	}
	return nil
}

// observe prepares the note on a call: by the pattern of the upstream that has it, else by what its
// path looks like.
func (h *handler) observe(c *call, req *http.Request) {
	kind := draft.Kind{Token: isTokenEndpoint(req.Method, req.URL.Path)}
	if c.upstream != nil {
		kind.Preset, kind.Operation = c.upstream.Name, c.operation
		patterns := budgethttp.NewRoutes()
		for _, pattern := range c.upstream.Costs[c.operation].Match {
			_, _ = patterns.Add(pattern, pattern) // the configuration has it
		}
		if pattern, ok := patterns.Operation(&http.Request{Method: req.Method, Host: c.host, URL: req.URL}); ok {
			kind.Path = pattern[strings.Index(pattern, "/"):]
		}
	}
	c.noted = h.options.Observe.Log.Call(c.scheme, c.authority(), kind, req)
}
