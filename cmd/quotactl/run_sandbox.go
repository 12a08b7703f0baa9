package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/jobs/sandbox"
)

// upstream is a sandbox that listens in this process.
type upstream struct {
	*sandbox.Server
	address *url.URL
	before  sandbox.Usage // of the day, when it was started
}

// startSandbox serves a sandbox of these settings with its log beside the configuration,
// and makes its store the one to use. The caller closes it.
func (a *app) startSandbox(cfg *config.Config, of sandbox.Config) (*upstream, error) {
	if err := a.useSandbox(cfg); err != nil {
		return nil, err
	}
	of.Now, of.LogPath = a.now, filepath.Join(filepath.Dir(cfg.File), "sandbox.log")
	server, err := sandbox.New(of)
	if err != nil {
		return nil, err
	}
	// It ends when it is closed, after the jobs: not at a signal, before them.
	if err := server.Listen(context.Background(), ""); err != nil {
		return nil, errors.Join(err, server.Close())
	}
	address, err := url.Parse(server.URL())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the sandbox's address: %w", err), server.Close())
	}
	a.logger().Info("sandbox upstream", "address", server.URL())
	return &upstream{Server: server, address: address, before: server.Usage()}, nil
}

// counted is what the upstream counted since it was started here; a day that
// began meanwhile is counted from its own start.
func (u *upstream) counted() sandbox.Usage {
	now := u.Usage()
	if now.Requests < u.before.Requests {
		return now
	}
	return sandbox.Usage{
		Requests: now.Requests - u.before.Requests,
		Units:    now.Units - u.before.Units,
		Rejected: now.Rejected - u.before.Rejected,
	}
}
