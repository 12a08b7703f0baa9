package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/jobs/sandbox"
)

func newSandboxCommand(a *app) *cobra.Command {
	var listen string
	var cfg sandbox.Config
	cmd := &cobra.Command{
		Use:   "sandbox",
		Short: "Serve a local upstream that enforces a true quota",
		Long: `Serve a local upstream that speaks YouTube's paths and errors and enforces a
true quota, reset at midnight Pacific, until it is interrupted. Its address goes
to stdout; GET /_sandbox/usage tells what it has counted.`,
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
	flags.StringVar(&listen, "listen", "127.0.0.1:0", "`ADDRESS` to listen on; port 0 is a free one")
	flags.Int64Var(&cfg.Quota, "quota", sandbox.DefaultQuota, "`UNITS` granted a Pacific day")
	flags.StringVar(&cfg.LogPath, "log", "", "`FILE` of requests, read again at start (else use is forgotten)")
	spanVar(flags, &cfg.Latency, "latency", 0, "`SPAN` that each answer takes")
	spanVar(flags, &cfg.Jitter, "jitter", 0, "most of a random `SPAN` on top of the latency")
	flags.Float64Var(&cfg.FailRate, "fail-rate", 0, "`SHARE` of requests answered 503, 0 to 1")
	flags.Float64Var(&cfg.DropRate, "drop-rate", 0, "`SHARE` of requests left without an answer, 0 to 1")
	flags.Uint64Var(&cfg.Seed, "seed", 0, "`SEED` of what fails and is dropped")
	return cmd
}

// serveSandbox serves until ctx ends, which is an interruption.
func (a *app) serveSandbox(ctx context.Context, listen string, cfg sandbox.Config) error {
	tried := cfg
	tried.LogPath = ""
	if _, err := sandbox.New(tried); err != nil { // without a log only the flags can be wrong
		return usage("%w", err)
	}
	upstream, err := sandbox.New(cfg)
	if err != nil {
		return err
	}
	err = upstream.Listen(ctx, listen)
	if err == nil {
		_, err = fmt.Fprintf(a.stdout, "listening on %s\n", upstream.URL())
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
