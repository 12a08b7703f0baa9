package daemon

import (
	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/look"
	"github.com/quotactl/quotactl/internal/page"
	"github.com/quotactl/quotactl/internal/secret"
)

// newSite makes the pages of a daemon, which are shown once it has a generation.
func newSite(d *Daemon) *page.Site {
	return page.New(page.Options{Reader: d.reader, Now: d.o.Now, Log: d.log, Version: d.o.Version})
}

// reader reads what pages show, by the configuration in force.
func (d *Daemon) reader() *look.Reader {
	g := d.current.Load()
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
