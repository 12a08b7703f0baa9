package daemon

import (
	"crypto/x509"
	"net/http"
	"os"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/door"
	"github.com/quotactl/quotactl/internal/look"
	"github.com/quotactl/quotactl/internal/page"
	"github.com/quotactl/quotactl/internal/secret"
	"github.com/quotactl/quotactl/internal/serve"
)

// reader reads what the configuration of a generation and the store have.
func (d *Daemon) reader(g *generation) *look.Reader {
	return &look.Reader{
		Config: g.config, Jobs: g.jobs, Store: d.store, URL: secret.RedactURL(d.storeAt(g.config)), Now: d.o.Now, Log: d.log,
		Open: func(name string) (*budget.Budget, error) {
			if b := g.budgets[name]; b != nil {
				return b, nil
			}
			return open.BudgetOn(d.store, g.config, d.storeAt(g.config), name, budget.WithLog(d.log))
		},
	}
}

// readerNow reads by the configuration in force.
func (d *Daemon) readerNow() *look.Reader { return d.reader(d.current.Load()) }

// pages makes the pages, which are behind the door.
func (d *Daemon) pages() *page.Site {
	return page.New(page.Options{
		Reader: d.readerNow, Now: d.o.Now, Log: d.log, Version: d.o.Version,
		Visitor: func(r *http.Request) page.Visitor { return page.Visitor(door.VisitorOf(r)) },
	})
}

// doorTo makes the door to the pages.
func (d *Daemon) doorTo(site door.Site) *door.Door {
	e := d.o.Endpoint
	o := door.Options{
		Site: site, Tokens: serve.NewTokens(e.token, e.readToken), Loopback: e.loopback, Certificate: e.certificate(), AllowActions: e.act,
		Reader: d.readerNow, Machine: "this machine", Log: d.log, Now: d.o.Now,
		UnderWay: max(1, door.DefaultUnderWay*openAtOnce()/mostConnections),
	}
	if host, err := os.Hostname(); err == nil {
		o.Machine = host
	}
	return door.New(o)
}

// certificate is the endpoint's own; nil without TLS.
func (e *Endpoint) certificate() *x509.Certificate {
	if e.secure == nil {
		return nil
	}
	return e.secure.Certificates[0].Leaf
}

// beside serves the pages beside other paths. A request that has arrived completely keeps its
// connection, unless it is for events, which the browser asks for again.
func beside(pages *door.Door, others http.Handler) http.Handler {
	if pages == nil {
		return others
	}
	kept := keepDeciding(pages)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case !pages.Serves(path):
			others.ServeHTTP(w, r)
		case door.IsStream(path):
			pages.ServeHTTP(w, r)
		default:
			kept.ServeHTTP(w, r)
		}
	})
}
