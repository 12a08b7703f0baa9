package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/internal/view"
	"github.com/quotactl/quotactl/jobs/sandbox"
)

func newSandboxCommand(a *app) *cobra.Command {
	var listen string
	var cfg sandbox.Config
	cmd := &cobra.Command{
		Use:   "sandbox",
		Short: "Serve a fake YouTube with a true quota",
		Long: `Serve a fake YouTube on this machine until it is interrupted: its paths, its
error bodies, and a true quota that resets at midnight Pacific. Its address goes
to standard output; GET /_sandbox/usage returns its count.`,
		Example: `  quotactl sandbox --listen 127.0.0.1:8080 --quota 10000`,
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("quota") && cfg.Quota < 1 {
				return usage("--quota %d: give 1 unit or more", cfg.Quota)
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			return a.serveSandbox(ctx, listen, cfg)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&listen, "listen", "127.0.0.1:0", "listen at `ADDRESS`; port 0 takes a free one")
	flags.Int64Var(&cfg.Quota, "quota", sandbox.DefaultQuota, "grant `UNITS` a Pacific day")
	flags.StringVar(&cfg.LogPath, "log", "", "log requests to `FILE`, and read it at the start (else nothing is remembered)")
	spanVar(flags, &cfg.Latency, "latency", 0, "answer after `SPAN`")
	spanVar(flags, &cfg.Jitter, "jitter", 0, "add a random time up to `SPAN`")
	flags.Float64Var(&cfg.FailRate, "fail-rate", 0, "answer this `SHARE` of requests with 503, 0 to 1")
	flags.Float64Var(&cfg.DropRate, "drop-rate", 0, "leave this `SHARE` of requests without an answer, 0 to 1")
	flags.BoolVar(&cfg.ReportUsage, "report-usage", false, "say in the headers X-RateLimit-… what the day grants and has used")
	flags.Uint64Var(&cfg.Seed, "seed", 0, "random `SEED` for failures")
	return cmd
}

// serveSandbox serves until ctx ends, which is an interruption.
func (a *app) serveSandbox(ctx context.Context, listen string, cfg sandbox.Config) error {
	tried := cfg
	tried.LogPath = ""
	if _, err := sandbox.New(tried); err != nil { // without a log only the flags can be wrong
		return usage("%w", err)
	}
	if on := a.screen(); on.Terminal {
		cfg.Counted = func(r sandbox.Request) { _ = writeText(a.stdout, view.Counted(a.screen(), r, cfg.Quota)) }
	}
	upstream, err := sandbox.New(cfg)
	if err != nil {
		return err
	}
	err = upstream.Listen(ctx, listen)
	if err == nil {
		err = writeText(a.stdout, fmt.Sprintf("listening on %s\n", upstream.URL()))
		if on := a.screen(); err == nil && on.Terminal {
			err = writeText(a.stdout, view.PointAt(on, upstream.URL()))
		}
	}
	if err != nil {
		return errors.Join(err, upstream.Close())
	}
	if err := errors.Join(upstream.Wait(), upstream.Close()); err != nil {
		return err
	}
	counted := upstream.Usage()
	_, err = fmt.Fprintf(a.stdout, "counted %d units in %d requests, %d of them rejected\n", counted.Units, counted.Requests, counted.Rejected)
	return errors.Join(err, &exitError{code: exitInterrupted, err: errors.New("the sandbox was interrupted")})
}
