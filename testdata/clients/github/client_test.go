package github_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-github/v90/github"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/testdata/clients/upstream"
)

// metered is the client beside its budget and its server.
type metered struct {
	*github.Client
	http   *http.Client // what it is made of
	budget *budget.Budget
	server *server
	seen   upstream.Observer
}

func newMetered(t *testing.T, network upstream.Network, o budgethttp.Options, menu menu, faults *upstream.Faults) *metered {
	t.Helper()
	m := &metered{server: newServer(t, menu, faults)}
	base := upstream.Serve(t, network, m.server, faults)
	m.budget, m.http = upstream.Meter(t, "github", "github/user1", base, o, &m.seen)
	m.Client = m.another(t)
	return m
}

// another is a client that knows nothing of the answers to the first, like that of another
// process.
func (m *metered) another(t *testing.T, options ...github.ClientOptionsFunc) *github.Client {
	t.Helper()
	client := must.Get(github.NewClient(append(options, github.WithHTTPClient(m.http))...))(t)
	return client
}

// list reads all pages, and is how many came.
func list(ctx context.Context, client *github.Client) (came int, err error) {
	options := &github.RepositoryListByOrgOptions{}
	for {
		_, resp, err := client.Repositories.ListByOrg(ctx, "octo", options)
		if err != nil {
			return came, err
		}
		came++
		if options.Page = resp.NextPage; options.Page == 0 {
			return came, nil
		}
	}
}

// changed asks for what has changed since; false: nothing.
func changed(ctx context.Context, client *github.Client) (bool, error) {
	req, err := client.NewRequest(ctx, http.MethodGet, "repos/octo/hello", nil)
	if err != nil {
		return false, err
	}
	req.Header.Set("If-None-Match", etag)
	resp, err := client.Do(req, nil)
	if resp != nil && resp.StatusCode == http.StatusNotModified {
		return false, nil
	}
	return err == nil, err
}

func get(ctx context.Context, client *github.Client) error {
	_, _, err := client.Repositories.Get(ctx, "octo", "hello")
	return err
}

func search(ctx context.Context, client *github.Client) error {
	_, _, err := client.Search.Repositories(ctx, "quota", nil)
	return err
}

func create(ctx context.Context, client *github.Client) error {
	_, _, err := client.Issues.Create(ctx, "octo", "hello", github.CreateIssueRequest{Title: "title"})
	return err
}

// query asks GraphQL for so many points' worth.
func (m *metered) query(ctx context.Context, points int) error {
	text := fmt.Sprintf(`{"query": "query { rateLimit { cost } }", "variables": {"points": %d}}`, points)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+host+"/graphql", strings.NewReader(text))
	if err != nil {
		return err
	}
	resp, err := m.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text2, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.Header.Get(budgethttp.RefusedHeader) != "":
		return errAnswered
	case resp.StatusCode != http.StatusOK || strings.Contains(string(text2), "errors"):
		return fmt.Errorf("graphql: %s: %w", resp.Status, errUpstream)
	}
	return nil
}

var (
	errAnswered = errors.New("refused by a response of the transport's own")
	errUpstream = errors.New("refused by the upstream")
)
