package budgethttp_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/internal/must"
)

// packer writes one coding.
type packer interface {
	io.WriteCloser
	Flush() error
}

// packers are the codings that a server may use; "raw" is deflate as many send it.
var packers = map[string]func(io.Writer) packer{
	"gzip":    func(w io.Writer) packer { return gzip.NewWriter(w) },
	"x-gzip":  func(w io.Writer) packer { return gzip.NewWriter(w) },
	"deflate": func(w io.Writer) packer { return zlib.NewWriter(w) },
	"br":      func(w io.Writer) packer { return brotli.NewWriter(w) },
	"raw": func(w io.Writer) packer {
		p, _ := flate.NewWriter(w, flate.BestCompression)
		return p
	},
	"zstd": func(w io.Writer) packer {
		p, _ := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
		return p
	},
}

// packed is a string in codings that are separated by commas, the innermost first.
func packed(t testing.TB, codings string, pieces ...string) string {
	t.Helper()
	text := pieces
	for coding := range strings.SplitSeq(codings, ",") {
		var b bytes.Buffer
		p := packers[coding](&b)
		for _, piece := range text {
			must.Get(io.WriteString(p, piece))(t)
			must.Do(t, p.Flush())
		}
		must.Do(t, p.Close())
		text = []string{b.String()}
	}
	return text[0]
}

// encodingOf is the header of codings.
func encodingOf(codings string) string { return strings.ReplaceAll(codings, "raw", "deflate") }

const events = "text/event-stream"

// ask makes one request of a metered client whose upstream answers so, and reads all
// of the body, which must be what was sent.
func askPacked(t *testing.T, base http.RoundTripper, body string, feedback feedback.Rules) (*budget.Budget, *observer) {
	t.Helper()
	b := open(t, budget.Spec{Costs: map[string]budget.Cost{"ask": usageCost}, Feedback: feedback})
	o := &observer{}
	client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: base, Operation: "ask", Observer: o})}
	resp := fetch(t, client, "http://upstream")
	readAll(t, resp, body)
	_ = resp.Body.Close()
	o.check(t)
	return b, o
}

// The transport looks at a body that the caller decodes itself, too, and passes it on as it
// was sent.
func TestEncodedBodies(t *testing.T) {
	document := []string{`{"choices":["` + strings.Repeat("words ", 1000) + `"],`, `"usage":{"total":7}}`}
	stream := []string{"data: {\"usage\":{\"total\":3}}\n\n", ": ping\n\n", "data: {\"usage\":{\"total\":7}}\n\n"}
	for _, codings := range []string{"gzip", "x-gzip", "deflate", "raw", "br", "zstd", "gzip,br", "zstd,gzip"} {
		for mediaType, pieces := range map[string][]string{"application/json": document, events: stream} {
			body := packed(t, codings, pieces...)
			for way, wrap := range map[string]func(io.Reader) io.Reader{
				"whole": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader, "end with data": iotest.DataErrReader,
			} {
				header := map[string]string{"Content-Type": mediaType, "Content-Encoding": encodingOf(codings)}
				b, o := askPacked(t, answers(200, header, wrap(strings.NewReader(body))), body, feedback.Rules{})
				want(t, b, 7, 1, 0)
				if len(o.unread) > 0 || t.Failed() {
					t.Fatalf("%s %s %s: unread %+v", codings, mediaType, way, o.unread)
				}
			}
		}
	}
}

// A refusal is known before the caller gets the response, and a report with its end.
func TestRulesOfEncodedBodies(t *testing.T) {
	rules := feedback.Rules{
		Refusals: []feedback.Refusal{{Name: "spent", Means: feedback.Exhausted, Lock: time.Minute, Condition: feedback.Condition{JSON: map[string][]string{"error.reason": {"spent"}}}}},
		Reports:  []feedback.Report{{Name: "hourly", Limit: "hourly", Used: &feedback.Source{JSON: "used", As: feedback.AsNumber}}},
	}
	long := hex.EncodeToString(bytes.Repeat([]byte("what does not compress as well"), 6000))
	for _, codings := range []string{"gzip", "deflate", "raw", "br", "zstd"} {
		for status, text := range map[int]string{200: `{"error":{"reason":"spent"},"used":112.5}`, 403: `{"error":{"reason":"spent"},"used":112.5}`, 429: `{"x":"` + long + `","error":{"reason":"spent"},"used":112.5}`} {
			body := packed(t, codings, text)
			b, o := askPacked(t, answers(status, map[string]string{"Content-Encoding": encodingOf(codings)}, strings.NewReader(body)), body, rules)
			if len(o.verdicts) != 1 || o.verdicts[0].Rule != "spent" || len(o.drifts) != 1 || o.drifts[0].Added != 63 {
				t.Errorf("%s, status %d: verdicts %+v, drifts %+v; want what is used above the 50 that were charged, rounded up", codings, status, o.verdicts, o.drifts)
			}
			want(t, b, 50+63, 2, 0)
			if len(o.unread) > 0 {
				t.Errorf("%s, status %d: unread %+v", codings, status, o.unread)
			}
		}
	}
}

// An encoded stream gets to its caller piece by piece, as it comes.
func TestEncodedStreamsAreNotHeldUp(t *testing.T) {
	for _, coding := range []string{"gzip", "deflate", "raw", "br", "zstd"} {
		synctest.Test(t, func(t *testing.T) {
			reader, writer := io.Pipe()
			p := packers[coding](writer)
			b := open(t, budget.Spec{Costs: map[string]budget.Cost{"ask": usageCost}})
			client := &http.Client{Transport: meter(t, b, budgethttp.Options{
				Base:      answers(200, map[string]string{"Content-Type": events, "Content-Encoding": encodingOf(coding)}, reader),
				Operation: "ask",
			})}
			resp := fetch(t, client, "http://upstream")
			defer func() { _ = resp.Body.Close() }()
			came := make(chan int, 1000)
			go func() {
				buffer := make([]byte, 4<<10)
				for {
					n, err := resp.Body.Read(buffer)
					came <- n
					if err != nil {
						close(came)
						return
					}
				}
			}()
			for range 3 {
				must.Get(io.WriteString(p, "data: {\"usage\":{\"total\":7}}\n\n"))(t)
				must.Do(t, p.Flush())
				synctest.Wait()
				if len(came) == 0 {
					t.Errorf("%s: nothing has come of what was sent", coding)
				}
				for len(came) > 0 {
					<-came
				}
			}
			_ = p.Close()
			_ = writer.Close()
			for range came { //nolint:revive // until the end
			}
			want(t, b, 7, 1, 0)
			_ = resp.Body.Close()
		})
	}
}

// What is cut or damaged tells what came before, and is said where that is not enough.
func TestDamagedBodies(t *testing.T) {
	stream := []string{"data: {\"usage\":{\"total\":3}}\n\n", "data: {\"usage\":{\"total\":7}}\n\n", "data: {}\n\n"}
	for _, coding := range []string{"gzip", "deflate", "raw", "br", "zstd"} {
		for mediaType, pieces := range map[string][]string{"application/json": {`{"usage":`, `{"total":7}}`}, events: stream} {
			good := packed(t, coding, pieces...)
			for cut := range len(good) {
				body := good[:cut]
				header := map[string]string{"Content-Type": mediaType, "Content-Encoding": encodingOf(coding)}
				b, o := askPacked(t, answers(200, header, strings.NewReader(body)), body, feedback.Rules{})
				units := spent(t, b).units
				if (len(o.unread) > 0) != (cut > 0) || units != 50 && units != 7 && (mediaType != events || units != 3) {
					t.Fatalf("%s %s, %d bytes of %d: %d units, unread %+v", coding, mediaType, cut, len(good), units, o.unread)
				}
				want(t, b, units, 1, 0)
			}
			for at := range len(good) {
				body := good[:at] + "\xff\x00\xff" + good[min(at+3, len(good)):]
				header := map[string]string{"Content-Type": mediaType, "Content-Encoding": encodingOf(coding)}
				b, _ := askPacked(t, answers(200, header, strings.NewReader(body)), body, feedback.Rules{}) // it ends, whatever it tells
				must.Equal(t, spent(t, b).open, 0, coding, mediaType, "damaged at", at)
			}
		}
	}
}

// A decoder that panics does not end the program: its body counts as damaged.
func TestDecoderPanics(t *testing.T) {
	defer budgethttp.AddPanicking()()
	for _, codings := range []string{"panics", "panics-later", "panics-later, panics-later"} {
		const body = "what no decoder expects"
		b, o := askPacked(t, answers(200, map[string]string{"Content-Type": "application/json", "Content-Encoding": codings}, strings.NewReader(body)), body, feedback.Rules{})
		if len(o.unread) != 1 || !strings.Contains(fmt.Sprintf("%+v", o.unread), "the body is damaged") {
			t.Errorf("%s: unread %+v, want that the body is damaged", codings, o.unread)
		}
		want(t, b, 50, 1, 0)
	}
}

// A caller that closes the body before its end pays the cost that it has named by then.
func TestClosedEncodedBody(t *testing.T) {
	for _, read := range []int{0, 1, 40} {
		text := []string{"data: {\"usage\":{\"total\":3}}\n\n", "data: " + strings.Repeat("z", 100) + "\n\n"}
		body := packed(t, "gzip", text...)
		first := len(packed(t, "gzip", text[0]))
		b := open(t, budget.Spec{Costs: map[string]budget.Cost{"ask": usageCost}})
		o := &observer{}
		client := &http.Client{Transport: meter(t, b, budgethttp.Options{
			Base: answers(200, map[string]string{"Content-Type": events, "Content-Encoding": "gzip"}, strings.NewReader(body)), Operation: "ask", Observer: o,
		})}
		resp := fetch(t, client, "http://upstream")
		if read == 40 {
			read = first
		}
		must.Get(io.ReadFull(resp.Body, make([]byte, read)))(t)
		_ = resp.Body.Close()
		if read == first {
			want(t, b, 3, 1, 0)
			continue
		}
		want(t, b, 50, 1, 0)
		if len(o.unread) != 1 || o.unread[0].What != budgethttp.UnreadActual || o.unread[0].Why != "the body was not read to its end" {
			t.Errorf("unread %+v", o.unread)
		}
	}
}

// bomb is what unpacks to a text over and over.
func bomb(t *testing.T, coding, unit string, times int) string {
	t.Helper()
	var b bytes.Buffer
	p := packers[coding](&b)
	for range times {
		must.Get(io.WriteString(p, unit))(t)
	}
	must.Do(t, p.Close())
	return b.String()
}

// However far a body expands, little of it is kept, and no more is unpacked than what
// was received warrants.
func TestDecompressionBombs(t *testing.T) {
	const size = 32 << 20
	for _, coding := range []string{"gzip", "deflate", "br", "zstd"} {
		for mediaType, unit := range map[string]string{"application/json": strings.Repeat(" ", 64<<10), events: "data: " + strings.Repeat("y", 64<<10) + "\n"} {
			body := bomb(t, coding, unit, size/len(unit))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			b, o := askPacked(t, answers(200, map[string]string{"Content-Type": mediaType, "Content-Encoding": coding}, strings.NewReader(body)), body, feedback.Rules{})
			runtime.ReadMemStats(&after)
			// The window of brotli is 16 MiB at most, and io.ReadAll keeps the body itself.
			if got := after.TotalAlloc - before.TotalAlloc; got > 24<<20 {
				t.Errorf("%s %s: %d bytes were taken for one of %d", coding, mediaType, got, len(body))
			}
			want(t, b, 50, 1, 0)
			why := "longer than 1 MiB"
			if mediaType == events && size > 1100*len(body)+1<<20 { // of a document no more is unpacked anyway
				why = "expands more than 1100 times"
			}
			if len(o.unread) != 1 || o.unread[0].What != budgethttp.UnreadActual || !strings.Contains(o.unread[0].Why, why) {
				t.Errorf("%s %s, %d bytes: unread %+v, want that it is %s", coding, mediaType, len(body), o.unread, why)
			}
			t.Logf("%s %s: %d bytes were taken for one of %d", coding, mediaType, after.TotalAlloc-before.TotalAlloc, len(body))
		}
	}
}

// An encoding that is not known is counted each time, and logged once for each
// operation; a cost in a header counts all the same.
func TestUnknownEncodings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asks, plain := usageCost, budget.Cost{Units: 1}
		asks.Match, plain.Match = []string{"ask.test/"}, []string{"other.test/"}
		b := open(t, budget.Spec{Costs: map[string]budget.Cost{"ask": asks, "other": plain}})
		o, log := &observer{}, &bytes.Buffer{}
		var header map[string]string
		client := &http.Client{Transport: meter(t, b, budgethttp.Options{
			Base: roundTrip(func(req *http.Request) (*http.Response, error) {
				return answers(200, header, strings.NewReader("?")).RoundTrip(req)
			}),
			Observer: o, Log: slog.New(slog.NewTextHandler(log, nil)),
		})}
		for _, encoding := range []string{"compress", "dcb", "gzip, zap", "gzip, gzip, gzip"} {
			header = map[string]string{"Content-Encoding": encoding}
			get(t, client, "http://ask.test")   //nolint:bodyclose // it closes it
			get(t, client, "http://other.test") //nolint:bodyclose // nothing is looked at there
			time.Sleep(2 * time.Minute)
		}
		if len(o.unread) != 4 || o.unread[0].What != budgethttp.UnreadEncoding || !strings.Contains(o.unread[2].Why, `"zap"`) {
			t.Errorf("unread %+v", o.unread)
		}
		if text := log.String(); strings.Count(text, "could not be read") != 1 || !strings.Contains(text, "operation=ask") || !strings.Contains(text, "what=encoding") {
			t.Errorf("logged\n%s", text)
		}
		header["X-Cost"] = "2.5"
		get(t, client, "http://ask.test") //nolint:bodyclose // it closes it
		want(t, b, 4*50+4*1+3, 9, 0)
	})
}

// The transport unpacks no more of a document that is too long than it looks at.
func TestLongEncodedDocuments(t *testing.T) {
	body := bomb(t, "br", strings.Repeat(" ", 64<<10), (8<<20)/(64<<10))
	body = packed(t, "gzip", body) // whose bound goes by what was received
	b, o := askPacked(t, answers(200, map[string]string{"Content-Encoding": "br, gzip"}, strings.NewReader(body)), body, feedback.Rules{})
	want(t, b, 50, 1, 0)
	if len(o.unread) != 1 || o.unread[0].Why != "a document in the body is longer than 1 MiB" {
		t.Errorf("unread %+v, want that the document is too long, before that it expands", o.unread)
	}
}
