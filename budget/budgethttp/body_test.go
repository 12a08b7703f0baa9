package budgethttp_test

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// usageCost reserves 50 units and settles with what the response says.
var usageCost = budget.Cost{Units: 50, Actual: []feedback.Source{
	{JSON: "usage.total", As: feedback.AsNumber},
	{JSON: "response.usage.total", As: feedback.AsNumber},
	{Header: "X-Cost", As: feedback.AsNumber},
}}

// answers is a base that answers with a header and a body.
func answers(status int, header map[string]string, body io.Reader) http.RoundTripper {
	return roundTrip(func(req *http.Request) (*http.Response, error) {
		h := http.Header{}
		for name, value := range header {
			h.Set(name, value)
		}
		rc, ok := body.(io.ReadCloser)
		if !ok {
			rc = io.NopCloser(body)
		}
		return &http.Response{StatusCode: status, Header: h, Body: rc, Request: req, ContentLength: -1}, nil
	})
}

func TestActualCost(t *testing.T) {
	const stream = "text/event-stream; charset=utf-8"
	long := strings.Repeat("x", 2<<20)
	for name, c := range map[string]struct {
		header map[string]string
		body   string
		want   int64
	}{
		"body":                    {nil, `{"usage":{"total":7}}`, 7},
		"second place":            {nil, `{"response":{"usage":{"total":8}}}`, 8},
		"header":                  {map[string]string{"X-Cost": "9"}, `{}`, 9},
		"body before header":      {map[string]string{"X-Cost": "9"}, `{"usage":{"total":7}}`, 7},
		"debt":                    {nil, `{"usage":{"total":70}}`, 70},
		"nothing":                 {nil, `{"usage":{"total":0}}`, 0},
		"not told":                {nil, `{"usage":{}}`, 50},
		"no JSON":                 {nil, `usage.total: 7`, 50},
		"negative":                {nil, `{"usage":{"total":-7}}`, 50},
		"absurd":                  {nil, `{"usage":{"total":1000000000000001}}`, 50},
		"broken off":              {nil, `{"usage":{"total":7`, 50},
		"too long":                {nil, `{"usage":{"total":7},"x":"` + long + `"}`, 50},
		"empty":                   {nil, ``, 50},
		"a fraction":              {nil, `{"usage":{"total":2.5}}`, 3},
		"a small fraction":        {nil, `{"usage":{"total":2.0000000000000000000000000000000000000000000001}}`, 3},
		"an exponent":             {nil, `{"usage":{"total":1e1}}`, 10},
		"a small power":           {nil, `{"usage":{"total":25e-1}}`, 3},
		"zeroes":                  {nil, `{"usage":{"total":7.000E0}}`, 7},
		"nothing but a sign":      {nil, `{"usage":{"total":-0.0}}`, 0},
		"a part below nothing":    {nil, `{"usage":{"total":-0.5}}`, 50},
		"a huge power":            {nil, `{"usage":{"total":1e999999999999}}`, 50},
		"as much as there is":     {nil, `{"usage":{"total":1E15}}`, 1_000_000_000_000_000},
		"a part more":             {nil, `{"usage":{"total":1000000000000000.1}}`, 50},
		"a number in a text":      {nil, `{"usage":{"total":"2.5"}}`, 3},
		"NaN":                     {nil, `{"usage":{"total":"NaN"}}`, 50},
		"Infinity":                {nil, `{"usage":{"total":"Infinity"}}`, 50},
		"a header's fraction":     {map[string]string{"X-Cost": "2.5"}, `{}`, 3},
		"a header's exponent":     {map[string]string{"X-Cost": "1e1"}, `{}`, 10},
		"a body that is no cost":  {map[string]string{"X-Cost": "9"}, `{"usage":{"total":"?"}}`, 9},
		"encoded":                 {map[string]string{"Content-Encoding": "gzip"}, packed(t, "gzip", `{"usage":{"total":7}}`), 7},
		"encoded, after nothing":  {map[string]string{"Content-Encoding": "identity, gzip"}, packed(t, "gzip", `{"usage":{"total":7}}`), 7},
		"encoded, told by header": {map[string]string{"Content-Encoding": "gzip", "X-Cost": "9"}, packed(t, "gzip", `{"usage":{"total":7}}`), 7},
		"in an unknown encoding":  {map[string]string{"Content-Encoding": "compress"}, `{"usage":{"total":7}}`, 50},
		"the same with a header":  {map[string]string{"Content-Encoding": "compress", "X-Cost": "9"}, `{"usage":{"total":7}}`, 9},
		"events, with a fraction": {map[string]string{"Content-Type": stream}, "data: {\"usage\":{\"total\":1e0}}\n\ndata: {\"usage\":{\"total\":3.2}}\n\n", 4},
		"events": {map[string]string{"Content-Type": stream},
			"event: a\ndata: {\"x\":1}\n\ndata: {\"usage\":{\"total\":3}}\n\n: ping\r\n\r\ndata:{\"usage\":\ndata: {\"total\":4}}\n\ndata: [DONE]\n\n", 4},
		"events with CR": {map[string]string{"Content-Type": stream}, "data: {\"usage\":{\"total\":3}}\r\rdata: x\r\r", 3},
		"events around a long one": {map[string]string{"Content-Type": stream},
			"data: {\"usage\":{\"total\":3}}\n\ndata: {\"usage\":{\"total\":4},\"x\":\"" + long + "\"}\n\ndata: {}\n\n", 50},
		"an event broken off": {map[string]string{"Content-Type": stream}, "data: {\"usage\":{\"total\":3}}\n\ndata: {\"usage\":{\"total\":4}}", 50},
		"lines":               {map[string]string{"Content-Type": "application/x-ndjson"}, "{\"usage\":{\"total\":3}}\n\n{\"x\":1}\r\n{\"usage\":{\"total\":5}}", 5},
		"lines of a sequence": {map[string]string{"Content-Type": "application/json-seq"}, "\x1e{\"usage\":{\"total\":3}}\n\x1e{\"usage\":{\"total\":6}}\n", 6},
		"lines around a long one": {map[string]string{"Content-Type": "application/jsonl"},
			"{\"usage\":{\"total\":3}}\n{\"usage\":{\"total\":4},\"x\":\"" + long + "\"}\n{}\n", 50},
	} {
		for way, wrap := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader, "end with data": iotest.DataErrReader,
		} {
			if way == "byte by byte" && len(c.body) > 1<<20 {
				way, wrap = "half by half", iotest.HalfReader
			}
			t.Run(name+" "+way, func(t *testing.T) {
				b := open(t, budget.Spec{Costs: map[string]budget.Cost{"ask": usageCost}, Limits: []limit.Limit{hourly(limit.MaxUnits)}})
				o := &observer{}
				client := &http.Client{Transport: meter(t, b, budgethttp.Options{
					Base: answers(200, c.header, wrap(strings.NewReader(c.body))), Operation: "ask", Observer: o,
				})}
				resp := fetch(t, client, "http://upstream")
				if l := spent(t, b); l.open != 1 && c.header["Content-Encoding"] != "compress" {
					t.Errorf("before the body is read: %+v", l)
				}
				text, err := io.ReadAll(resp.Body)
				if string(text) != c.body || err != nil {
					t.Errorf("the caller got %d bytes of %d, %v", len(text), len(c.body), err)
				}
				want(t, b, c.want, 1, 0) // before it is closed
				check.NoError(t, resp.Body.Close())
				want(t, b, c.want, 1, 0)
				o.check(t)
			})
		}
	}
}

// A caller that stops reading pays the cost that the body has named by then, else the
// reserved units.
func TestActualCostOfAClosedBody(t *testing.T) {
	for name, c := range map[string]struct {
		header map[string]string
		body   string
		read   int
		want   int64
	}{
		"unread":              {nil, `{"usage":{"total":7}}`, 0, 50},
		"half":                {nil, `{"usage":{"total":7}}`, 10, 50},
		"all but the end":     {nil, `{"usage":{"total":7}}`, 21, 7},
		"stream":              {map[string]string{"Content-Type": "text/event-stream"}, "data: {\"usage\":{\"total\":3}}\n\ndata: {}\n\n", 31, 3},
		"header, body unread": {map[string]string{"X-Cost": "9"}, `{"usage":{"total":7}}`, 0, 9},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, budget.Spec{Costs: map[string]budget.Cost{"ask": usageCost}})
			client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: answers(200, c.header, strings.NewReader(c.body)), Operation: "ask"})}
			resp := fetch(t, client, "http://upstream")
			must.Get(io.ReadFull(resp.Body, make([]byte, c.read)))(t)
			for range 2 { // closing twice settles once
				check.NoError(t, resp.Body.Close())
			}
			want(t, b, c.want, 1, 0)
		})
	}
}

// The transport looks at a body that net/http unpacks.
func TestActualCostOfAnUnpackedBody(t *testing.T) {
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		check.Equal(t, r.Header.Get("Accept-Encoding"), "gzip", "the server was asked for")
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_ = json.NewEncoder(z).Encode(map[string]any{"usage": map[string]int{"total": 7}})
		_ = z.Close()
	})
	b := open(t, budget.Spec{Costs: map[string]budget.Cost{"ask": usageCost}})
	client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: base, Operation: "ask"})}
	if resp, _ := get(t, client, "http://upstream"); !resp.Uncompressed { //nolint:bodyclose // get closes it
		t.Errorf("%+v", resp)
	}
	want(t, b, 7, 1, 0)
}

// The caller gets the base's errors; what tells no cost settles what was reserved.
func TestBodiesThatFail(t *testing.T) {
	failure := errors.New("cut")
	b := open(t, budget.Spec{
		Costs:    map[string]budget.Cost{"ask": usageCost},
		Feedback: feedback.Rules{Refusals: []feedback.Refusal{{Name: "text", Means: feedback.Overloaded, Condition: feedback.Condition{Text: []string{"never"}}}}},
	})
	for i, status := range []int{200, 500} { // the second is read ahead
		body := io.MultiReader(strings.NewReader(`{"usage":`), iotest.ErrReader(failure))
		client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: answers(status, nil, body), Operation: "ask"})}
		resp := fetch(t, client, "http://upstream")
		text, err := io.ReadAll(resp.Body)
		if string(text) != `{"usage":` || !errors.Is(err, failure) {
			t.Errorf("%q, %v", text, err)
		}
		want(t, b, int64(50*(i+1)), int64(i+1), 0)
		_ = resp.Body.Close()
	}
}

// However long a body is, little of it is kept.
func TestBodiesStreamInConstantMemory(t *testing.T) {
	effort.Unraced(t)
	for mediaType, unit := range map[string]string{
		"application/json":     strings.Repeat(" ", 1<<10),
		"text/event-stream":    "data: " + strings.Repeat("y", 1017) + "\n",
		"application/x-ndjson": strings.Repeat("z", 1<<10),
	} {
		const size = 64 << 20
		b := open(t, budget.Spec{Costs: map[string]budget.Cost{"ask": usageCost}})
		client := &http.Client{Transport: meter(t, b, budgethttp.Options{
			Base: answers(200, map[string]string{"Content-Type": mediaType}, &repeat{unit: unit, left: size}), Operation: "ask",
		})}
		resp := fetch(t, client, "http://upstream")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		n, err := io.CopyBuffer(onlyWriter{io.Discard}, resp.Body, make([]byte, 32<<10))
		runtime.ReadMemStats(&after)
		if n != size || err != nil {
			t.Errorf("%s: %d bytes, %v", mediaType, n, err)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > 8<<20 {
			t.Errorf("%s: %d bytes were taken for a body of %d", mediaType, got, size)
		}
		_ = resp.Body.Close()
		want(t, b, 50, 1, 0)
	}
}

type onlyWriter struct{ io.Writer }

// repeat is a body of one unit over and over.
type repeat struct {
	unit     string
	at, left int
}

func (r *repeat) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), r.left)], r.unit[r.at:])
	r.at, r.left = (r.at+n)%len(r.unit), r.left-n
	return n, nil
}

// Settled at the header, where nothing in the body can tell.
func TestActualCostInTheHeader(t *testing.T) {
	cost := budget.Cost{Units: 50, Actual: []feedback.Source{{Header: "X-Cost", As: feedback.AsNumber}}}
	for value, units := range map[string]int64{"9": 9, "0": 0, "": 50, "-1": 50, "many": 50} {
		b := open(t, budget.Spec{Costs: map[string]budget.Cost{"ask": cost}})
		client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: answers(200, map[string]string{"X-Cost": value}, strings.NewReader("body")), Operation: "ask"})}
		resp := fetch(t, client, "http://upstream")
		want(t, b, units, 1, 0)
		_ = resp.Body.Close()
	}
}

// The first place that tells counts, also where the body is waited for since it may
// tell that the request was free.
func TestActualCostInTheOrderOfItsPlaces(t *testing.T) {
	header, body := feedback.Source{Header: "X-Cost", As: feedback.AsNumber}, feedback.Source{JSON: "usage", As: feedback.AsNumber}
	free := feedback.Rules{Refusals: []feedback.Refusal{{
		Name: "free", Means: feedback.Throttled, Free: true, Condition: feedback.Condition{JSON: map[string][]string{"error": {"free"}}},
	}}}
	for _, c := range []struct {
		places []feedback.Source
		units  int64
	}{
		{[]feedback.Source{header, body}, 9},
		{[]feedback.Source{body, header}, 7},
		{[]feedback.Source{{JSON: "none", As: feedback.AsNumber}, header, body}, 9},
	} {
		for _, feedback := range []feedback.Rules{{}, free} {
			b := open(t, budget.Spec{Costs: map[string]budget.Cost{"ask": {Units: 50, Actual: c.places}}, Feedback: feedback})
			base := answers(200, map[string]string{"X-Cost": "9"}, strings.NewReader(`{"usage":7}`))
			client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: base, Operation: "ask"})}
			get(t, client, "http://upstream") //nolint:bodyclose // it closes it
			want(t, b, c.units, 1, 0)
		}
	}
}

// Of several values at a place the largest cost counts, whatever is between them, and
// the body may be an array.
func TestActualCostOfSeveralValues(t *testing.T) {
	for _, c := range []struct {
		path, body string
		want       int64
	}{
		{"items.#.cost", `{"items":[{"cost":2},{"cost":"?"},{"cost":4},{"cost":3}]}`, 4},
		{"#.cost", ` [{"cost":3},{"cost":5}]`, 5},
	} {
		cost := budget.Cost{Units: 50, Actual: []feedback.Source{{JSON: c.path, As: feedback.AsNumber}}}
		b := open(t, budget.Spec{Costs: map[string]budget.Cost{"ask": cost}})
		client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: answers(200, nil, strings.NewReader(c.body)), Operation: "ask"})}
		get(t, client, "http://upstream") //nolint:bodyclose // it closes it
		if got := spent(t, b); got != (ledger{c.want, 1, 0}) {
			t.Errorf("%s: the ledger holds %+v, want %d units", c.body, got, c.want)
		}
	}
}

// An event that breaks off may have stated another cost, also where a header comes before
// it in the order of the places.
func TestActualCostOfAnEventBrokenOffBehindAHeader(t *testing.T) {
	cost := budget.Cost{Units: 50, Actual: []feedback.Source{{Header: "X-Cost", As: feedback.AsNumber}, {JSON: "usage", As: feedback.AsNumber}}}
	b := open(t, budget.Spec{Costs: map[string]budget.Cost{"ask": cost}})
	base := answers(200, map[string]string{"Content-Type": events}, strings.NewReader("data: {\"usage\":3}\n\ndata: {\"usage\":4}"))
	client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: base, Operation: "ask"})}
	get(t, client, "http://upstream") //nolint:bodyclose // it closes it
	want(t, b, 50, 1, 0)
}

// A body that fails leaves no doubt about a cost that only the header states, even while
// the charge waits for the body.
func TestActualCostInTheHeaderBesideABodyThatFails(t *testing.T) {
	b := open(t, budget.Spec{
		Costs: map[string]budget.Cost{"ask": {Units: 50, Actual: []feedback.Source{{Header: "X-Cost", As: feedback.AsNumber}}}},
		Feedback: feedback.Rules{Refusals: []feedback.Refusal{{
			Name: "free", Means: feedback.Throttled, Free: true, Condition: feedback.Condition{JSON: map[string][]string{"error": {"free"}}},
		}}},
	})
	base := answers(200, map[string]string{"X-Cost": "9"}, io.MultiReader(strings.NewReader(`{"error":`), iotest.ErrReader(io.ErrUnexpectedEOF)))
	client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: base, Operation: "ask"})}
	resp := fetch(t, client, "http://upstream")
	_, err := io.Copy(io.Discard, resp.Body)
	check.Is(t, err, io.ErrUnexpectedEOF)
	must.Do(t, resp.Body.Close())
	want(t, b, 9, 1, 0)
}

// A response without a body has nothing to wait for.
func TestResponsesWithoutBody(t *testing.T) {
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if status := r.URL.Query().Get("status"); status != "" {
			var n int
			_, _ = fmt.Sscan(status, &n)
			w.WriteHeader(n)
		}
	})
	b := open(t, budget.Spec{Costs: map[string]budget.Cost{"ask": usageCost}})
	client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: base, Operation: "ask"})}
	for i, ask := range []struct{ method, status string }{{"HEAD", "200"}, {"GET", "204"}, {"GET", "304"}, {"GET", ""}} {
		req := must.Get(http.NewRequestWithContext(t.Context(), ask.method, "http://upstream/?status="+ask.status, nil))(t)
		resp := do(t, client, req)
		want(t, b, int64(50*(i+1)), int64(i+1), 0)
		if resp.Body != http.NoBody {
			t.Errorf("%+v: a body %T", ask, resp.Body)
		}
		_ = resp.Body.Close()
	}
}
