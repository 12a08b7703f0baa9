package budgethttp_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/internal/must"
)

const (
	noJSON  = "the body is not a JSON object or array"
	noEnd   = "the last event is cut: it has no empty line after it"
	noLine  = "a document in the body is truncated, or not JSON"
	tooLong = "a document in the body is longer than 1 MiB"
)

// whatCame are the kinds and reasons of what could not be read.
func whatCame(unread []budgethttp.Unread) []string {
	var all []string
	for _, one := range unread {
		all = append(all, string(one.What)+": "+one.Why)
	}
	return all
}

// A document that came last and could not be read may have told a higher cost: the call is
// settled at no less than its reservation, and the report names the document. The same holds
// for a Transport and for Apply.
func TestStreamsWhoseLastDocumentCannotBeRead(t *testing.T) {
	const lines = "application/x-ndjson"
	doc := func(cost string) string { return `{"usage":{"total":` + cost + `}}` }
	long := strings.Repeat("x", 2<<20)
	actual := func(why string) []string { return []string{"actual: " + why} }
	for name, c := range map[string]struct {
		mediaType, body string
		units           int64
		want            []string
	}{
		"a line that is no number":          {lines, doc("4") + "\n" + doc(`"x"`) + "\n", 50, actual("it is not a number")},
		"after more than was reserved":      {lines, doc("70") + "\n" + doc(`"x"`) + "\n", 70, actual("it is not a number")},
		"a later line tells":                {lines, doc("4") + "\n" + doc(`"x"`) + "\n" + doc("5") + "\n", 5, nil},
		"the other place tells less":        {lines, doc("4") + "\n" + `{"usage":{"total":"x"},"response":{"usage":{"total":1}}}` + "\n", 50, actual("it is not a number")},
		"a line that says nothing":          {lines, doc("4") + "\n{}\n\"ping\"\n\n", 4, nil},
		"a line that is cut":                {lines, doc("4") + "\n" + `{"usage":{"total":55`, 50, actual(noLine)},
		"the only line is cut":              {lines, `{"usage":{"total":55`, 50, actual(noLine)},
		"a line without its end":            {lines, doc("4") + "\n" + doc("5"), 5, nil},
		"a line that is too long":           {lines, doc("4") + "\n" + `{"x":"` + long + `"}` + "\n", 50, actual(tooLong)},
		"a line that is too long and cut":   {lines, doc("4") + "\n" + `{"x":"` + long, 50, actual(tooLong)},
		"a page as lines":                   {lines, "<html>busy</html>", 50, actual(noLine)},
		"a page after a line":               {lines, doc("4") + "\n<html>busy</html>", 50, actual(noLine)},
		"an event that is cut":              {events, "data: " + doc("4") + "\n\n" + `data: {"usage":{"total":5`, 50, actual(noEnd)},
		"an event without its end":          {events, "data: " + doc("4") + "\n\ndata: " + doc("5") + "\n", 50, actual(noEnd)},
		"the only event is cut":             {events, `data: {"usage":{"total":5`, 50, actual(noEnd)},
		"the only event is without its end": {events, "data: " + doc("5") + "\n", 50, actual(noEnd)},
		"an event that is no number":        {events, "data: " + doc("4") + "\n\ndata: " + doc(`"n/a"`) + "\n\n", 50, actual("it is not a number")},
		"an event that is too long":         {events, "data: " + doc("4") + "\n\n" + `data: {"x":"` + long + "\"}\n\n", 50, actual(tooLong)},
		"one that is too long and cut":      {events, "data: " + doc("4") + "\n\n" + `data: {"x":"` + long, 50, actual(tooLong)},
		"an event that is not JSON":         {events, "data: oops\n\n", 50, actual(noJSON)},
		"the same without its end":          {events, "data: oops", 50, actual(noJSON)},
		"a page as events":                  {events, "<html>busy</html>", 50, actual(noJSON)},
		"the mark of the end":               {events, "data: " + doc("4") + "\n\ndata: [DONE]\n\n", 4, nil},
		"the same, cut":                     {events, "data: " + doc("4") + "\n\ndata: [DONE]", 4, nil},
		"an end that tells no cost, cut":    {events, "data: " + doc("4") + "\n\nevent: end\ndata: {\"done\":true}\n", 4, nil},
		"no more than a comment":            {events, ": ping\n\n", 50, nil},
		"a mark before the events":          {events, "\ufeffdata: " + doc("4") + "\n\n", 4, nil},
		"a mark before the lines":           {lines, "\ufeff" + doc("4") + "\n", 4, nil},
		"a mark before the body":            {"application/json", "\ufeff" + doc("4"), 4, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b, o := askPacked(t, answers(200, map[string]string{"Content-Type": c.mediaType}, strings.NewReader(c.body)), c.body, feedback.Rules{})
			want(t, b, c.units, 1, 0)
			if got := whatCame(o.unread); !reflect.DeepEqual(got, c.want) {
				t.Errorf("a Transport told %q, want %q", got, c.want)
			}
			b = open(t, budget.Spec{Costs: map[string]budget.Cost{"ask": usageCost}})
			done, err := given{200, c.body, []string{"Content-Type", c.mediaType}}.apply(t, b, reserve(t, b, "ask"))
			if got := whatCame(done.Unread); err != nil || done.Units != c.units || !reflect.DeepEqual(got, c.want) {
				t.Errorf("Apply: %d units, %q, %v; want %d, %q", done.Units, got, err, c.units, c.want)
			}
		})
	}
}

// What a damaged body tells may be damaged too, whoever unpacks it: net/http, which
// does so where nobody asked for an encoding, the Transport or Apply.
func TestCostsOfDamagedBodies(t *testing.T) {
	for _, c := range []struct{ cost, want int64 }{{7, 50}, {70, 70}} {
		text := `{"usage":{"total":` + strconv.FormatInt(c.cost, 10) + `}}`
		good := packed(t, "gzip", text)
		checksum := []byte(good)
		checksum[len(checksum)-8] ^= 1
		for name, body := range map[string]string{"a checksum": string(checksum), "cut": good[:len(good)-4]} {
			upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Encoding", "gzip")
				_, _ = io.WriteString(w, body)
			}))
			for _, accept := range []string{"", "gzip"} { // "": net/http unpacks it
				b := open(t, budget.Spec{Costs: map[string]budget.Cost{"ask": usageCost}})
				o := &observer{}
				client := &http.Client{Transport: meter(t, b, budgethttp.Options{Operation: "ask", Observer: o})}
				req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, upstream.URL, nil))(t)
				if accept != "" {
					req.Header.Set("Accept-Encoding", accept)
				}
				resp := do(t, client, req)
				if _, err := io.ReadAll(resp.Body); (err == nil) != (accept != "") {
					t.Errorf("%s, accepted %q: the caller got the error %v", name, accept, err)
				}
				_ = resp.Body.Close()
				want(t, b, c.want, 1, 0)
				if len(o.unread) != 1 || o.unread[0].What != budgethttp.UnreadBody {
					t.Errorf("%s, accepted %q: unread %+v, want the body", name, accept, o.unread)
				}
			}
			upstream.Close()
			b := open(t, budget.Spec{Costs: map[string]budget.Cost{"ask": usageCost}})
			done, err := given{200, body, []string{"Content-Encoding", "gzip"}}.apply(t, b, reserve(t, b, "ask"))
			if err != nil || done.Units != c.want || len(done.Unread) != 1 || done.Unread[0].What != budgethttp.UnreadBody {
				t.Errorf("%s: Apply: %+v, %v; want %d units and that the body is damaged", name, done, err, c.want)
			}
		}
	}
}

// A body that is shorter than its length is cut: what it tells is not the last word. One that is
// empty may answer HEAD, and a shell removes the last line's end.
func TestBodiesShorterThanTheirLength(t *testing.T) {
	const (
		broke = "reading the body failed before its end"
		four  = `{"usage":{"total":4}}`
		more  = `{"usage":{"total":70}}`
	)
	for name, c := range map[string]struct {
		status         int
		header         []string
		body           string
		missing, units int64
		want           []string
	}{
		"JSON":                   {200, nil, four, 9, 50, []string{"body: " + broke}},
		"lines":                  {200, []string{"Content-Type", "application/x-ndjson"}, four + "\n", 22, 50, []string{"body: " + broke}},
		"events":                 {200, []string{"Content-Type", events}, "data: " + four + "\n\n", 30, 50, []string{"body: " + broke}},
		"more than was reserved": {200, []string{"Content-Type", events}, "data: " + more + "\n\n", 30, 70, []string{"body: " + broke}},
		"in the middle":          {200, nil, four[:9], 12, 50, []string{"actual: " + broke}},
		"of an error":            {500, nil, four, 9, 50, []string{"body: " + broke}},
		"the cost in a header":   {200, []string{"X-Cost", "3"}, "{}", 9, 50, []string{"body: " + broke}},
		"whole":                  {200, nil, four, 0, 4, nil},
		"longer":                 {200, nil, four, -9, 4, nil},
		"without its line's end": {200, nil, four, 2, 4, nil},
		"HEAD":                   {200, []string{"X-Cost", "3"}, "", 90, 3, nil},
		"not modified":           {304, []string{"X-Cost", "3"}, "", 90, 3, nil},
	} {
		h := http.Header{}
		for i := 0; i < len(c.header); i += 2 {
			h.Set(c.header[i], c.header[i+1])
		}
		b := open(t, budget.Spec{Costs: map[string]budget.Cost{"ask": usageCost}})
		resp := &http.Response{StatusCode: c.status, Header: h, Body: io.NopCloser(strings.NewReader(c.body)), ContentLength: int64(len(c.body)) + c.missing}
		done, err := budgethttp.Apply(t.Context(), b, reserve(t, b, "ask"), resp)
		if got := whatCame(done.Unread); err != nil || done.Units != c.units || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %d units, %q, %v; want %d, %q", name, done.Units, got, err, c.units, c.want)
		}
	}
	b := open(t, budget.Spec{Costs: map[string]budget.Cost{"ask": {Units: 50, Actual: []feedback.Source{{Header: "X-Cost", As: feedback.AsNumber}}}}})
	resp := &http.Response{StatusCode: 200, Header: http.Header{"X-Cost": {"3"}}, Body: io.NopCloser(strings.NewReader("{")), ContentLength: 90}
	if done, err := budgethttp.Apply(t.Context(), b, reserve(t, b, "ask"), resp); err != nil || done.Units != 3 || done.Unread != nil {
		t.Errorf("a body that nothing needs: %+v, %v; want 3 units", done, err)
	}
}

// A refusal that stands in a body is recognised after a byte order mark; where the body
// cannot be read, each rule that might have fitted is reported.
func TestRefusalsThatCannotBeRead(t *testing.T) {
	json := map[string][]string{"error.reason": {"spent"}}
	rules := feedback.Rules{Refusals: []feedback.Refusal{
		{Name: "words", Means: feedback.Exhausted, Lock: time.Minute, Condition: feedback.Condition{Text: []string{"never"}, JSON: json}},
		{Name: "other", Means: feedback.Exhausted, Lock: time.Minute, Condition: feedback.Condition{Status: []int{402}, JSON: json}},
		{Name: "spent", Means: feedback.Exhausted, Lock: time.Minute, Condition: feedback.Condition{Status: []int{403, 503}, JSON: json}},
		{Name: "any", Means: feedback.Exhausted, Lock: time.Minute, Condition: feedback.Condition{JSON: json}},
	}}
	const spentBody = `{"error":{"reason":"spent"}}`
	long := spentBody[:len(spentBody)-1] + `,"x":"` + strings.Repeat("x", 2<<20) + `"}`
	both := func(why string) []string { return []string{"spent: " + why, "any: " + why} }
	for name, c := range map[string]struct {
		status  int
		body    string
		refused string
		want    []string
	}{
		"read":                      {403, spentBody, "spent", nil},
		"a byte order mark":         {403, "\ufeff" + spentBody, "spent", nil},
		"another reason":            {403, `{"error":{"reason":"forbidden"}}`, "", nil},
		"nothing":                   {403, "", "", nil},
		"cut":                       {403, spentBody[:20], "", both(noJSON)},
		"a page":                    {403, "<html>", "", both(noJSON)},
		"a page that is not theirs": {404, "<html>", "", []string{"any: " + noJSON}},
		"a server's own trouble":    {500, "<html>", "", nil},
		"of a rule's status":        {503, "<html>", "", []string{"spent: " + noJSON}},
		"too long":                  {403, long, "", append([]string{"words: " + tooLong}, both(tooLong)...)},
		"an answer that is a page":  {200, "<html>", "", nil},
		"an answer that is cut":     {200, spentBody[:20], "", []string{"any: " + noJSON}},
		"an answer that is spent":   {200, spentBody, "any", nil},
	} {
		t.Run(name, func(t *testing.T) {
			check := func(by string, unread []budgethttp.Unread, refused string) {
				var got []string
				for _, one := range unread {
					if one.What == budgethttp.UnreadRefusal {
						got = append(got, one.Rule+": "+one.Why)
					}
				}
				if !reflect.DeepEqual(got, c.want) || refused != c.refused {
					t.Errorf("%s: refused by %q, %q; want %q, %q", by, refused, got, c.refused, c.want)
				}
			}
			_, o := askPacked(t, answers(c.status, nil, strings.NewReader(c.body)), c.body, rules)
			refused := ""
			if len(o.verdicts) > 0 {
				refused = o.verdicts[0].Rule
			}
			check("a Transport", o.unread, refused)
			b := open(t, budget.Spec{Costs: map[string]budget.Cost{"ask": usageCost}, Feedback: rules})
			done := must.Get(given{c.status, c.body, nil}.apply(t, b, reserve(t, b, "ask")))(t)
			refused = ""
			if done.Refused != nil {
				refused = done.Refused.Rule
			}
			check("Apply", done.Unread, refused)
		})
	}
}

// A refusal whose body breaks off is reported.
func TestRefusalsThatBreakOff(t *testing.T) {
	b := open(t, budget.Spec{Costs: map[string]budget.Cost{"ask": {Units: 1}}, Feedback: feedback.Rules{Refusals: []feedback.Refusal{
		{Name: "text", Means: feedback.Overloaded, Condition: feedback.Condition{Text: []string{"never"}}},
	}}})
	o := &observer{}
	body := io.MultiReader(strings.NewReader("the limit "), iotest.ErrReader(errors.New("cut")))
	client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: answers(403, nil, body), Operation: "ask", Observer: o})}
	resp := fetch(t, client, "http://upstream")
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if got := whatCame(o.unread); !reflect.DeepEqual(got, []string{"body: reading the body failed before its end"}) {
		t.Errorf("unread %q", got)
	}
}

// Where a body that may have told the cost first is damaged, a header that tells less
// than was reserved is not believed.
func TestCostInTheHeaderOfADamagedBody(t *testing.T) {
	body := packed(t, "gzip", strings.Repeat(`{"usage":{}}`, 100))
	for units, want := range map[string]int64{"3": 50, "70": 70} {
		b := open(t, budget.Spec{Costs: map[string]budget.Cost{"ask": usageCost}})
		done, err := given{200, body[:len(body)/2], []string{"Content-Encoding", "gzip", "X-Cost", units}}.apply(t, b, reserve(t, b, "ask"))
		if err != nil || done.Units != want || len(done.Unread) != 1 {
			t.Errorf("%s in the header: %+v, %v; want %d units, and one unread value", units, done, err, want)
		}
	}
}
