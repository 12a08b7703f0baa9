package httpfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
)

// wholeResponse is a response and its body, with the error of either.
func wholeResponse(in io.Reader) (status int, header http.Header, body string, err error) {
	resp, err := Read(in)
	if err != nil {
		return 0, nil, "", err
	}
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, string(text), errors.Join(err, resp.Body.Close())
}

func TestReadResponse(t *testing.T) {
	for _, test := range []struct {
		name, text string
		status     int
		header     string // x-a
		body       string
	}{
		{"plain", "HTTP/1.1 200 OK\r\nX-A: 1\r\n\r\nbody\n", 200, "1", "body\n"},
		{"line ends alone", "HTTP/1.1 200 OK\nX-A: 1\n\nbody", 200, "1", "body"},
		{"HTTP/2", "HTTP/2 429 \r\nx-a: 1\r\n\r\n{}", 429, "1", "{}"},
		{"HTTP/3 without a reason", "HTTP/3 503\r\nx-a: 1\r\n\r\n", 503, "1", ""},
		{"no header", "HTTP/1.0 204 No Content\r\n\r\n", 204, "", ""},
		{"header alone", "HTTP/1.1 200 OK\r\nX-A: 1\r\n", 200, "1", ""},
		{"a folded line", "HTTP/1.1 200 OK\r\nX-A: 1\r\n  2\r\n\r\n", 200, "1 2", ""},
		{"continue", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nX-A: 2\r\n\r\nx", 201, "2", "x"},
		{"proxy and redirect", "HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 302 Found\r\nLocation: /\r\nX-A: 1\r\n\r\nHTTP/2 200 \r\nx-a: 2\r\n\r\nx", 200, "2", "x"},
		{"chunks taken away", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{\"a\":1}", 200, "", `{"a":1}`},
		{"chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{\"a\r\n4;x=y\r\n\":1}\r\n0\r\n\r\n", 200, "", `{"a":1}`},
		{"what looks like chunks", "HTTP/1.1 200 OK\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 200, "", "3\r\nabc\r\n0\r\n\r\n"},
		{"a length that is not the body's", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Encoding: gzip\r\n\r\nunpacked", 200, "", "unpacked"},
		{"a body that speaks of HTTP", "HTTP/1.1 429 Too Many Requests\r\nX-A: 1\r\n\r\nHTTP/1.1 429: slow down", 429, "1", "HTTP/1.1 429: slow down"},
		{"a body that begins as a status line does", "HTTP/1.1 429 Too Many Requests\r\nX-A: 1\r\n\r\nHTTP/2 429 errors count\nas calls\n", 429, "1", "HTTP/2 429 errors count\nas calls\n"},
		{"a body that is one such line", "HTTP/1.1 429 Too Many Requests\r\n\r\nHTTP/1.1 429 Too Many Requests", 429, "", "HTTP/1.1 429 Too Many Requests"},
		{"a long line in the body", "HTTP/1.1 200 OK\r\n\r\nHTTP/2 200 " + strings.Repeat("x", 1<<20), 200, "", "HTTP/2 200 " + strings.Repeat("x", 1<<20)},
		{"a body after a proxy's answer", "HTTP/1.1 200 Connection established\n\nHTTP/2 200 \n\nHTTP/2 is fast\n", 200, "", "HTTP/2 is fast\n"},
		{"a status of LinkedIn", "HTTP/1.1 999 Request denied\r\nX-A: 1\r\n\r\n<html>", 999, "1", "<html>"},
		{"a status of 600", "HTTP/1.1 600\r\n\r\n", 600, "", ""},
		{"a long body is cut", "HTTP/1.1 200 OK\r\n\r\n" + strings.Repeat("x", MaxBody+1), 200, "", strings.Repeat("x", MaxBody)},
	} {
		status, header, body, err := wholeResponse(strings.NewReader(test.text))
		if err != nil || status != test.status || header.Get("X-A") != test.header || body != test.body {
			t.Errorf("%s: status %d, x-a %q, body %.50q, error %v", test.name, status, header.Get("X-A"), body, err)
		}
	}
	for name, text := range map[string]string{
		"nothing":                "",
		"a body":                 `{"a":1}`,
		"a status of two digits": "HTTP/1.1 20 OK\r\n\r\n",
		"a status of 99":         "HTTP/1.1 099 OK\r\n\r\n",
		"a status of 1000":       "HTTP/1.1 1000 OK\r\n\r\n",
		"no status line's end":   "HTTP/1.1",
		"no header":              "HTTP/1.1 200 OK\r\nhunter2\r\n\r\n",
		"no end":                 "HTTP/1.1 200 OK\r\n",
		"no end of the second":   "HTTP/1.1 200 Connection established\r\n\r\nHTTP/2 429 \r\n",
		"an interim alone":       "HTTP/1.1 100 Continue\r\n\r\n",
		"an interim and a body":  "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n{}",
		"a long header":          "HTTP/1.1 200 OK\r\nX-A: " + strings.Repeat("x", mostHeader),
		"a long status line":     strings.Repeat("x", mostHeader),
		"too many":               strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", mostResponses+1),
	} {
		status, _, _, err := wholeResponse(strings.NewReader(text))
		if err == nil {
			t.Errorf("%s: status %d, want an error", name, status)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error shows the response: %v", name, err)
		}
	}
	_, _, body, err := wholeResponse(strings.NewReader("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc"))
	check.Is(t, err, io.ErrUnexpectedEOF, "a chunk cut short: body", body)
}

// Whatever a file holds, reading it neither panics nor goes past its bounds; and
// what net/http writes as a response is read as it was.
func FuzzReadResponse(f *testing.F) {
	for _, seed := range []string{
		"HTTP/1.1 200 OK\r\nX-A: 1\r\n\r\nbody", "HTTP/2 429 \r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", "HTTP/1.1 200 OK\r\nX-A\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", "",
	} {
		f.Add([]byte(seed), uint16(200), "value", "body")
		f.Add([]byte(seed), uint16(503), "a, \"b\"", "3\r\nabc\r\n")
	}
	f.Fuzz(func(t *testing.T, text []byte, status uint16, value, body string) {
		if code, _, read, err := wholeResponse(bytes.NewReader(text)); err == nil && (len(read) > len(text) || code < 100 || code > 999) {
			t.Fatalf("%q is a response of status %d with %d bytes", text, code, len(read))
		}
		w := httptest.NewRecorder()
		w.Header().Set("X-A", value)
		w.WriteHeader(200 + int(status)%800)
		_, _ = io.WriteString(w, body)
		want := w.Result()
		var written bytes.Buffer
		if err := want.Write(&written); err != nil || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return // it is no response
		}
		if mayBeFollowed(want) {
			return // it has no body, or another response may come after it
		}
		code, header, read, err := wholeResponse(&written)
		again := fmt.Sprint(code, len(header["X-A"]), read, err)
		if once := fmt.Sprint(want.StatusCode, 1, body, error(nil)); again != once {
			t.Fatalf("value %q: %q, want %q", value, again, once)
		}
	})
}

// A body is no response, even if it is one word for word: only what cannot be the content
// of the response before it is another response.
func TestABodyIsNoResponse(t *testing.T) {
	const recorded = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 3600\r\n\r\n{}"
	for name, test := range map[string]struct {
		header   string
		followed bool
	}{
		"of text":                        {"HTTP/1.1 200 OK\r\nContent-Type: text/plain", false},
		"of a redirect, whole":           {fmt.Sprint("HTTP/1.1 302 Found\r\nLocation: /a\r\nContent-Length: ", len(recorded)), false},
		"of a challenge, whole":          {fmt.Sprint("HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic\r\nContent-Length: ", len(recorded)), false},
		"with a length":                  {"HTTP/1.1 200 OK\r\nContent-Length: 59", false},
		"whose chunks curl removed":      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked", false},
		"unpacked":                       {"HTTP/1.1 200 OK\r\nContent-Encoding: gzip", false},
		"of a file":                      {"HTTP/1.0 200 OK\r\nETag: \"1\"", false},
		"of HTTP/2":                      {"HTTP/2 200 \r\ndate: Sun, 29 Nov 2026 21:00:00 GMT", false},
		"of HTTP/3":                      {"HTTP/3 200 ", false},
		"with what is left":              {"HTTP/1.1 200 OK\r\nServer: x\r\nX-RateLimit-Remaining: 5\r\nConnection: close", false},
		"with a cookie":                  {"HTTP/1.1 200 OK\r\nSet-Cookie: a=b", false},
		"with a field of its own":        {"HTTP/1.0 200 OK\r\nDate: Sun, 29 Nov 2026 21:00:00 GMT\r\nX-A: 1", false},
		"with its chunks' trailer":       {"HTTP/1.1 200 OK\r\nTrailer: X-Cost", false},
		"of what was created":            {"HTTP/1.1 201 Created\r\nServer: x", false},
		"of a bare range":                {"HTTP/1.1 206 Partial Content\r\nConnection: close", false},
		"of a bare answer in a tunnel":   {"HTTP/1.1 200 OK\r\nVia: 1.1 p\r\n\r\nHTTP/1.1 200 OK\r\nServer: x", false},
		"of a range":                     {"HTTP/1.1 206 Partial Content\r\nContent-Type: message/http", false},
		"of an error":                    {"HTTP/1.1 500 Internal Server Error", false},
		"of a refusal":                   {"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain", false},
		"of LinkedIn":                    {"HTTP/1.1 999 Request denied", false},
		"of choices":                     {"HTTP/1.1 300 Multiple Choices", false},
		"without a challenge":            {"HTTP/1.1 401 Unauthorized", false},
		"without a proxy's challenge":    {"HTTP/1.1 407 Proxy Authentication Required", false},
		"through a tunnel":               {"HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 200 OK", false},
		"through a tunnel, continued":    {"HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK", false},
		"after an interim response":      {"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/2 200 \r\ncontent-type: text/plain", false},
		"after a redirect":               {"HTTP/1.1 302 Found\r\nLocation: /\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: text/plain", false},
		"an interim response":            {"HTTP/1.1 100 Continue", true},
		"early hints":                    {"HTTP/2 103 \r\nlink: </a>", true},
		"an upgrade to HTTP/2":           {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c", true},
		"a tunnel":                       {"HTTP/1.1 200 Connection established", true},
		"a tunnel of HTTP/1.0":           {"HTTP/1.0 200 OK\r\nProxy-Agent: goproxy", true},
		"a tunnel with all its fields":   {"HTTP/1.1 200 OK\r\nDate: Sun, 29 Nov 2026 21:00:00 GMT\r\nserver: envoy\r\nvia: 1.1 p\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5\r\nProxy-Connection: keep-alive", true},
		"a tunnel of no length":          {"HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 0", true},
		"a tunnel after a challenge":     {"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\r\nHTTP/1.1 200 OK\r\nVia: 1.1 p", true},
		"a tunnel after a redirect":      {"HTTP/1.1 301 Moved Permanently\r\nLocation: https://a\r\n\r\nHTTP/1.1 200 OK\r\nVia: 1.1 p", true},
		"a tunnel of HTTP/2":             {"HTTP/2 200 \r\nserver: nghttpx", false},
		"a tunnel with wrong fields":     {"HTTP/1.1 200 Connection Established\r\nTransfer-Encoding: chunked\r\nContent-Length: 7", true},
		"a redirect":                     {"HTTP/2 301 \r\nlocation: /\r\ncontent-length: 178\r\ncontent-type: text/html", true},
		"a redirect through two proxies": {"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 307 Temporary Redirect\r\nLocation: https://b\r\n\r\nHTTP/1.1 200 OK", true},
		"a challenge":                    {"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Digest realm=\"a\"\r\nContent-Length: 12", true},
		"a proxy's challenge":            {"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"a\"\r\nContent-Length: 12", true},
		"a failed expectation":           {"HTTP/1.1 417 Expectation Failed", true},
		"no content":                     {"HTTP/1.1 204 No Content", true},
		"an empty error":                 {"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0", true},
	} {
		status, _, body, err := wholeResponse(strings.NewReader(test.header + "\r\n\r\n" + recorded))
		if followed := status == 429 && body == "{}"; err != nil || followed != test.followed || !followed && !strings.HasSuffix(body, recorded) {
			t.Errorf("%s: status %d, body %q, error %v; want another response: %v", name, status, body, err, test.followed)
		}
	}
}

// The length that a header announces is the body's, unless curl may have changed the body.
func TestContentLength(t *testing.T) {
	for text, want := range map[string]int64{
		"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{}":                                                   90,
		"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n":                                                     90, // HEAD, or cut
		"HTTP/1.1 200 OK\r\n\r\n{}":                                                                         0,
		"HTTP/1.1 200 OK\r\nContent-Length: all\r\n\r\n{}":                                                  0,
		"HTTP/1.1 200 OK\r\nContent-Length: 90\r\nContent-Encoding: gzip\r\n\r\n{}":                         0,
		"HTTP/1.1 200 OK\r\nContent-Length: 90\r\nTransfer-Encoding: chunked\r\n\r\n{}":                     0,
		"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 90\r\n\r\nHTTP/1.1 200 OK\r\n\r\n{}":          0, // curl -L dropped it
		"HTTP/1.1 302 Found\r\nLocation: /\r\n\r\nHTTP/2 200 \r\ncontent-length: 2\r\n\r\n{}":               2,
		"HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 404 Not Found\r\ncontent-length: 3\r\n\r\n{}":  3,
		"HTTP/1.1 100 Continue\r\nContent-Length: 90\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}": 2,
	} {
		resp, err := Read(strings.NewReader(text))
		if err != nil || resp.Body.Close() != nil || resp.ContentLength != want {
			t.Errorf("%q: %+v, %v; want the length %d", text, resp, err, want)
		}
	}
}
