package main

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/alert"
)

func newAlertCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "alert", Short: "Try whether an alert arrives", RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }, Args: knownCommand, Example: `  quotactl alert test team`}
	cmd.AddCommand(&cobra.Command{
		Use:   "test ALERT",
		Short: "Send a message as an alert would",
		Long: `Send one message of kind test by an alert of the configuration, from here, once.
Exit code 1 if it is not delivered; the error says why.`,
		Example: `  quotactl alert test team`,
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			cfg, _, err := a.loadConfig()
			if err != nil {
				return err
			}
			i := slices.IndexFunc(cfg.Alerts, func(one config.Alert) bool { return one.Name == args[0] })
			if i < 0 {
				return usage("%s has no alert %q: write [alert.%s], or name another", a.configPath, args[0], args[0])
			}
			if err := alert.Test(ctx, a.env, cfg.Alerts[i], a.now()); err != nil {
				return err
			}
			return writeText(a.stdout, "alert "+args[0]+" was delivered\n")
		},
	})
	return cmd
}
