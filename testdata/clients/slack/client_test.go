package slack_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/slack-go/slack"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/testdata/clients/upstream"
)

// token is the secret.
const token = "xoxb-secret"

// metered is the client beside its budget and its server.
type metered struct {
	*slack.Client
	http   *http.Client // what it is made of
	budget *budget.Budget
	server *server
	seen   upstream.Observer
}

func newMetered(t *testing.T, network upstream.Network, o budgethttp.Options, menu menu, faults *upstream.Faults) *metered {
	t.Helper()
	m := &metered{server: newServer(t, menu, faults)}
	base := upstream.Serve(t, network, m.server, faults)
	m.budget, m.http = upstream.Meter(t, "slack", "slack/T0123ABC", base, o, &m.seen)
	m.Client = slack.New(token, slack.OptionHTTPClient(m.http))
	return m
}

func (m *metered) post(ctx context.Context) error {
	_, _, err := m.PostMessageContext(ctx, "C1", slack.MsgOptionText("Hello there", false))
	return err
}

func (m *metered) user(ctx context.Context) error {
	_, err := m.GetUserInfoContext(ctx, "U1")
	return err
}

// list reads all pages, and is how many came.
func (m *metered) list(ctx context.Context) (came int, err error) {
	asked := &slack.GetConversationsParameters{Limit: 1}
	for {
		_, next, err := m.GetConversationsContext(ctx, asked)
		if err != nil {
			return came, err
		}
		came++
		if next == "" {
			return came, nil
		}
		asked.Cursor = next
	}
}
