package daemon

import (
	"crypto/x509"
	"net/http"
	"os"

	"github.com/quotactl/quotactl/internal/door"
	"github.com/quotactl/quotactl/internal/look"
	"github.com/quotactl/quotactl/internal/serve"
)

// doorTo makes the door to the daemon's pages. It outlives reloads, and so do its sessions.
func (d *Daemon) doorTo(site door.Site) *door.Door {
	e := d.o.Endpoint
	o := door.Options{
		Site: site, Tokens: serve.NewTokens(e.token, e.readToken), Loopback: e.loopback, AllowActions: e.act,
		Reader:  func() *look.Reader { return d.reader(d.current.Load()) },
		Machine: "this machine", Log: d.log, Now: d.o.Now,
		UnderWay: max(1, door.DefaultUnderWay*openAtOnce()/mostConnections),
	}
	if e.secure != nil {
		o.Certificate = certificateOf(e)
	}
	if host, err := os.Hostname(); err == nil {
		o.Machine = host
	}
	return door.New(o)
}

// certificateOf is the endpoint's own certificate, which was parsed with its key.
func certificateOf(e *Endpoint) *x509.Certificate { return e.secure.Certificates[0].Leaf }

// beside serves the pages beside other paths. A request that has arrived completely keeps its
// connection, unless it is for events: they come again over another connection.
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
