package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/alert"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/secret"
	"github.com/quotactl/quotactl/internal/view"
)

func newDoctorCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the store and its settings",
		Long: `Connect to the store as the daemon would, and report for each check whether it
is ok, may go wrong (warning) or is wrong (error), and what to do. Nothing is
charged. Exit code 1 if something is wrong.`,
		Example: `  quotactl doctor
  quotactl doctor --json | jq '.checks[] | select(.level != "ok")'`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			return a.doctor(ctx, asJSON)
		},
	}
	a.sandboxFlag(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "answer in JSON")
	return cmd
}

// doctor checks the store and the ledger of each budget.
func (a *app) doctor(ctx context.Context, asJSON bool) error {
	cfg, _, err := a.loadConfig()
	if err != nil {
		return err
	}
	checked := a.reading("checking the store")
	checks := append(a.secretFindings(cfg), a.findings(ctx, cfg)...)
	checked()
	found := answer.NewDoctor(a.now(), secret.RedactURL(a.storeAt(cfg)), checks)
	if asJSON {
		err = writeJSON(a.stdout, found)
	} else {
		err = writeText(a.stdout, view.Doctor(a.screen(), found))
	}
	if faults := found.Faults(); err == nil && faults > 0 {
		err = &exitError{code: exitFailed, err: fmt.Errorf("%s found; the checks say what to do", view.Plural(faults, "error"))}
	}
	return err
}

// secretFindings tell whether the secrets are where the configuration says, here where
// the doctor was asked.
func (a *app) secretFindings(cfg *config.Config) []driver.Finding {
	var list []driver.Finding
	missing := cfg.MissingSecrets(a.env, secret.Short)
	for _, m := range missing {
		says, advice, _ := strings.Cut(m.Message, "; ")
		list = append(list, driver.Finding{Check: "secrets", Level: driver.Warning, Says: says, Advice: advice})
	}
	if n := len(cfg.SecretPlaces()); n > 0 && len(missing) == 0 {
		list = append(list, driver.Finding{Check: "secrets", Level: driver.OK, Says: view.Plural(n, "secret") + " found where the configuration says"})
	}
	return list
}

// findings are what the store, the host and the ledgers show.
func (a *app) findings(ctx context.Context, cfg *config.Config) []driver.Finding {
	store, err := a.openStore(ctx, cfg)
	if err != nil {
		return []driver.Finding{{Check: "connection", Level: driver.Fault, Says: err.Error()}}
	}
	list := open.Diagnose(ctx, store)
	for _, f := range list {
		if f.Check == "connection" && f.Level == driver.Fault {
			return append(list, closing(store)...)
		}
	}
	for _, name := range cfg.Budgets() {
		b, err := a.budget(cfg, store, name)
		if err != nil {
			list = append(list, driver.Finding{Check: "totals of " + name, Level: driver.Fault, Says: err.Error()})
			continue
		}
		list = append(append(list, b.Audit(ctx)), answer.Findings(ctx, b)...)
	}
	return slices.Concat(list, open.Crowding(store), alert.Findings(ctx, store, cfg.Alerts), closing(store))
}

// closing closes the store and reports a failure.
func closing(store open.Backend) []driver.Finding {
	if err := store.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return []driver.Finding{{Check: "close", Level: driver.Warning, Says: err.Error()}}
	}
	return nil
}
