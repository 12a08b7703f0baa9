package openai_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/testdata/clients/upstream"
)

// key is the secret.
const key = "sk-secret"

// most is how many tokens a request asks for, and what the preset estimates.
const most = 4000

// metered is the client beside its budget and its server.
type metered struct {
	openai.Client
	budget *budget.Budget
	server *server
	seen   upstream.Observer
}

func newMetered(t *testing.T, network upstream.Network, o budgethttp.Options, menu menu, faults *upstream.Faults) *metered {
	t.Helper()
	m := &metered{server: newServer(t, menu, faults)}
	base := upstream.Serve(t, network, m.server, faults)
	var client *http.Client
	m.budget, client = upstream.Meter(t, "openai", "openai/team", base, o, &m.seen)
	m.Client = openai.NewClient(option.WithBaseURL("https://"+host+"/v1/"), option.WithAPIKey(key), option.WithHTTPClient(client))
	return m
}

var question = openai.ChatCompletionNewParams{
	Model: "gpt-5", MaxCompletionTokens: openai.Int(most),
	Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Say hello.")},
}

func (m *metered) chat(ctx context.Context) error {
	_, err := m.Chat.Completions.New(ctx, question)
	return err
}

func (m *metered) streamChat(ctx context.Context) error {
	asked := question
	asked.StreamOptions.IncludeUsage = openai.Bool(true)
	stream := m.Chat.Completions.NewStreaming(ctx, asked)
	var said strings.Builder
	for stream.Next() {
		for _, choice := range stream.Current().Choices {
			said.WriteString(choice.Delta.Content)
		}
	}
	return heard(stream.Err(), said.String())
}

var prompt = responses.ResponseNewParams{
	Model: "gpt-5", MaxOutputTokens: openai.Int(most),
	Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("Say hello.")},
}

func (m *metered) respond(ctx context.Context) error {
	_, err := m.Responses.New(ctx, prompt)
	return err
}

func (m *metered) streamResponse(ctx context.Context) error {
	stream := m.Responses.NewStreaming(ctx, prompt)
	var said strings.Builder
	for stream.Next() {
		if event := stream.Current(); event.Type == "response.output_text.delta" {
			said.WriteString(event.Delta)
		}
	}
	return heard(stream.Err(), said.String())
}

// heard finds what is missing of a stream that did not fail.
func heard(failed error, said string) error {
	if failed == nil && said != "Hello there" {
		return errors.New("the stream said " + said)
	}
	return failed
}

// apiError is what the API said; nil: it is another error.
func apiError(err error) *openai.Error {
	var said *openai.Error
	errors.As(err, &said)
	return said
}
