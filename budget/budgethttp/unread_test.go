package budgethttp_test

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
)

// A value in the place of a cost that is not a cost is reported, once for a response; nothing
// is reported where another place tells the cost.
func TestUnreadCosts(t *testing.T) {
	stream := map[string]string{"Content-Type": events}
	long := strings.Repeat("x", 2<<20)
	inBody := func(why string) []budgethttp.Unread {
		return []budgethttp.Unread{{Operation: "ask", What: budgethttp.UnreadActual, Place: "json usage.total", Why: why}}
	}
	body := func(why string) []budgethttp.Unread {
		return []budgethttp.Unread{{Operation: "ask", What: budgethttp.UnreadActual, Why: why}}
	}
	inHeader := budgethttp.Unread{Operation: "ask", What: budgethttp.UnreadActual, Place: "header X-Cost", Why: "it is not a number"}
	for name, c := range map[string]struct {
		status int
		header map[string]string
		body   io.Reader
		want   []budgethttp.Unread
	}{
		"a cost":                     {200, nil, strings.NewReader(`{"usage":{"total":2.5}}`), nil},
		"nothing":                    {200, nil, strings.NewReader(`{"usage":{"total":null}}`), nil},
		"nowhere":                    {200, nil, strings.NewReader(`{"usage":{}}`), nil},
		"no body":                    {200, nil, strings.NewReader(``), nil},
		"NaN":                        {200, nil, strings.NewReader(`{"usage":{"total":"NaN"}}`), inBody("it is not a number")},
		"a truth":                    {200, nil, strings.NewReader(`{"usage":{"total":true}}`), inBody("it is neither a number nor a text")},
		"a table":                    {200, nil, strings.NewReader(`{"usage":{"total":{"in":1}}}`), inBody("it is neither a number nor a text")},
		"below nothing":              {200, nil, strings.NewReader(`{"usage":{"total":-0.1}}`), inBody("it is negative")},
		"absurd":                     {200, nil, strings.NewReader(`{"usage":{"total":1e16}}`), inBody("it is more than 10^15")},
		"absurd, with an error":      {400, nil, strings.NewReader(`{"usage":{"total":1e16}}`), inBody("it is more than 10^15")},
		"another place tells":        {200, nil, strings.NewReader(`{"usage":{"total":"?"},"response":{"usage":{"total":1}}}`), inBody("it is not a number")},
		"the header tells":           {200, map[string]string{"X-Cost": "3"}, strings.NewReader(`{"usage":{"total":"?"}}`), inBody("it is not a number")},
		"the header tells, a page":   {200, map[string]string{"X-Cost": "3"}, strings.NewReader(`<html>`), body("the body is not a JSON object or array")},
		"the header tells, no more":  {200, map[string]string{"X-Cost": "3"}, strings.NewReader(`{}`), nil},
		"the header does not":        {200, map[string]string{"X-Cost": "?"}, strings.NewReader(`{}`), []budgethttp.Unread{inHeader}},
		"neither":                    {200, map[string]string{"X-Cost": ""}, strings.NewReader(`{"usage":{"total":"?"}}`), append(inBody("it is not a number"), inHeader)},
		"a page":                     {200, nil, strings.NewReader(`<html>`), body("the body is not a JSON object or array")},
		"an error's page":            {502, nil, strings.NewReader(`<html>`), nil},
		"too long":                   {200, nil, strings.NewReader(`{"usage":{"total":1},"x":"` + long + `"}`), body("a document in the body is longer than 1 MiB")},
		"an event":                   {200, stream, strings.NewReader("data: {\"usage\":{\"total\":[{}]}}\n\ndata: {\"usage\":{\"total\":[{}]}}\n\ndata: [DONE]\n\n"), inBody("it is neither a number nor a text")},
		"a later event tells":        {200, stream, strings.NewReader("data: {\"usage\":{\"total\":\"?\"}}\n\ndata: {\"usage\":{\"total\":2}}\n\n"), nil},
		"events that say nothing":    {200, stream, strings.NewReader("data: {\"usage\":null}\n\ndata: [DONE]\n\n"), nil},
		"an event that is too long":  {200, stream, strings.NewReader("data: {\"usage\":{\"total\":1},\"x\":\"" + long + "\"}\n\n"), body("a document in the body is longer than 1 MiB")},
		"a body that has broken off": {200, nil, io.MultiReader(strings.NewReader(`{"usage":`), iotest.ErrReader(io.ErrUnexpectedEOF)), body("reading the body failed before its end")},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, budget.Spec{Costs: map[string]budget.Cost{"ask": usageCost}})
			o := &observer{}
			client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: answers(c.status, c.header, c.body), Operation: "ask", Observer: o})}
			resp := fetch(t, client, "http://upstream")
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			check.EqualSlices(t, o.unread, c.want, "unread")
			check.Equal(t, spent(t, b).open, 0)
		})
	}
}

// The Observer hears of a value that cannot be read each time, and the log at most once a
// minute, with how often it came since. The log does not contain the value.
func TestUnreadIsLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, log := &observer{}, &bytes.Buffer{}
		b := open(t, budget.Spec{Costs: map[string]budget.Cost{"ask": usageCost}, Limits: []limit.Limit{hourly(10_000)}})
		client := &http.Client{Transport: meter(t, b, budgethttp.Options{
			Base: roundTrip(func(req *http.Request) (*http.Response, error) {
				return answers(200, nil, strings.NewReader(`{"usage":{"total":"secret"}}`)).RoundTrip(req)
			}),
			Operation: "ask", Observer: o, Log: slog.New(slog.NewTextHandler(log, nil)),
		})}
		for range 13 { // three minutes of them, from the first to the last
			get(t, client, "http://upstream") //nolint:bodyclose // it closes it
			time.Sleep(15 * time.Second)
		}
		check.Equal(t, len(o.unread), 13, "told")
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 4 || strings.Contains(lines[0], "not_logged_since") || !strings.Contains(lines[3], "not_logged_since=3") || strings.Contains(log.String(), "secret") {
			t.Errorf("logged\n%s", log)
		}
		check.Contains(t, lines[0], `what=actual place="json usage.total" why="it is not a number"`, "logged")
	})
}

// A report that cannot be read is reported, except for a limit that does not count the
// operation, and for a response from a cache.
func TestUnreadReports(t *testing.T) {
	for name, c := range map[string]struct {
		header map[string]string
		body   string
		want   []budgethttp.Unread
	}{
		"read":              {map[string]string{"X-Left": "998.9"}, `{"used":1}`, nil},
		"nothing":           {nil, `{}`, nil},
		"a page":            {nil, `<html>`, nil},
		"from a cache":      {map[string]string{"X-Left": "?", "Age": "7"}, `{"used":"?"}`, nil},
		"of a limit's own":  {map[string]string{"X-Other": "?"}, `{}`, nil},
		"a reset that was":  {map[string]string{"X-Left": "999", "X-Reset": "0"}, `{}`, nil},
		"a reset elsewhere": {map[string]string{"X-Left": "999", "X-Reset": "soon"}, `{}`, []budgethttp.Unread{{Operation: "get", What: budgethttp.UnreadReport, Rule: "left", Place: "header X-Reset", Why: "it is not in the expected form"}}},
		"both": {map[string]string{"X-Left": "?"}, `{"used":"?"}`, []budgethttp.Unread{
			{Operation: "get", What: budgethttp.UnreadReport, Rule: "left", Place: "header X-Left", Why: "it is not a number"},
			{Operation: "get", What: budgethttp.UnreadReport, Rule: "used", Place: "json used", Why: "it is not a number"},
		}},
		"below nothing": {nil, `{"used":-1}`, []budgethttp.Unread{{Operation: "get", What: budgethttp.UnreadReport, Rule: "used", Place: "json used", Why: "it is negative"}}},
		"too long": {nil, `{"used":1,"x":"` + strings.Repeat("x", 2<<20) + `"}`, []budgethttp.Unread{
			{Operation: "get", What: budgethttp.UnreadReport, Rule: "used", Why: "a document in the body is longer than 1 MiB"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			number := func(header string) *feedback.Source { return &feedback.Source{Header: header, As: feedback.AsNumber} }
			other := hourly(1000)
			other.Name, other.Operations = "other", []string{"put"}
			b := open(t, budget.Spec{
				Costs: map[string]budget.Cost{"get": {Units: 1}}, Limits: []limit.Limit{hourly(1000), other},
				Feedback: feedback.Rules{Reports: []feedback.Report{
					{Name: "left", Limit: "hourly", Remaining: number("X-Left"), Reset: &feedback.Source{Header: "X-Reset", As: feedback.AsSeconds}},
					{Name: "used", Limit: "hourly", Used: &feedback.Source{JSON: "used", As: feedback.AsNumber}},
					{Name: "other", Limit: "other", Remaining: number("X-Other")},
				}},
			})
			o := &observer{}
			client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: answers(200, c.header, strings.NewReader(c.body)), Operation: "get", Observer: o})}
			get(t, client, "http://upstream") //nolint:bodyclose // it closes it
			check.EqualSlices(t, o.unread, c.want, "unread")
		})
	}
}

// A value that was logged within the minute does not keep the observer from hearing of later ones.
func TestUnreadValuesBesideOneLoggedAlready(t *testing.T) {
	number := func(header string) *feedback.Source { return &feedback.Source{Header: header, As: feedback.AsNumber} }
	b := open(t, budget.Spec{Costs: map[string]budget.Cost{"get": {Units: 1}}, Feedback: feedback.Rules{Reports: []feedback.Report{
		{Name: "left", Limit: "hourly", Remaining: number("X-Left")},
		{Name: "used", Limit: "hourly", Used: number("X-Used")},
	}}})
	o := &observer{}
	base := answers(200, map[string]string{"X-Left": "?", "X-Used": "?"}, strings.NewReader(""))
	client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: base, Operation: "get", Observer: o})}
	both := []budgethttp.Unread{
		{Operation: "get", What: budgethttp.UnreadReport, Rule: "left", Place: "header X-Left", Why: "it is not a number"},
		{Operation: "get", What: budgethttp.UnreadReport, Rule: "used", Place: "header X-Used", Why: "it is not a number"},
	}
	for range 2 {
		get(t, client, "http://upstream") //nolint:bodyclose // it closes it
	}
	check.EqualSlices(t, o.unread, slices.Concat(both, both), "unread")
}

// The observer hears of a body in an unknown encoding also where nothing but a report is in it, which is
// read as the caller reads.
func TestUnknownEncodingOfAReport(t *testing.T) {
	b := open(t, budget.Spec{Costs: map[string]budget.Cost{"get": {Units: 1}}, Feedback: feedback.Rules{Reports: []feedback.Report{
		{Name: "used", Limit: "hourly", Used: &feedback.Source{JSON: "used", As: feedback.AsNumber}},
	}}})
	o := &observer{}
	base := answers(200, map[string]string{"Content-Encoding": "compress"}, strings.NewReader("?"))
	client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: base, Operation: "get", Observer: o})}
	get(t, client, "http://upstream") //nolint:bodyclose // it closes it
	if len(o.unread) != 1 || o.unread[0].What != budgethttp.UnreadEncoding {
		t.Errorf("unread %+v", o.unread)
	}
}
