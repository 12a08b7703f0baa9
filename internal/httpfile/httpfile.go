// Package httpfile reads an HTTP response from a file, as curl -i writes it.
package httpfile

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// How much of a response is read, in bytes, and how many responses may follow each
// other: see mayBeFollowed.
const (
	mostHeader    = 1 << 20
	MaxBody       = 16 << 20
	mostResponses = 50
)

var (
	statusLine = lazily(`^HTTP/([0-9])(?:\.[0-9])? ([1-9][0-9][0-9])(?: (.*))?$`)
	// anotherResponse is a status line followed by a header, the empty line or the end
	// of the text.
	anotherResponse = lazily(`^HTTP/[0-9](?:\.[0-9])? [1-9][0-9][0-9](?: [^\r\n]*)?\r?\n(?:$|\r?\n|[!-9;-~]+:)`)

	chunkLine = lazily(`^[0-9A-Fa-f]{1,8}[ \t]*(;[^\r\n]*)?\r\n`)
)

// Read reads a response as curl -i writes it: status line, header, an empty line, and the
// body. If there are several responses, the last is the answer. A body that begins as a
// response does is still a body: another response can follow only one without content.
// curl removes chunks from a body and, with --compressed, its compression, but leaves the
// headers that announce them. Read also accepts a body that still has chunks. It cuts a
// body after [MaxBody] bytes. ContentLength is the body's length as the header announces
// it, or 0 if curl may have changed the length.
func Read(in io.Reader) (*http.Response, error) {
	bounded := &io.LimitedReader{R: in, N: mostHeader}
	buffered := bufio.NewReader(bounded)
	tunnel := false // the response before opened it: this one came through it
	for range mostResponses {
		resp, err := readResponseHeader(buffered)
		switch {
		case bounded.N == 0:
			return nil, fmt.Errorf("its header is longer than %d bytes", mostHeader)
		case err != nil:
			return nil, err
		}
		if status := resp.StatusCode; status < 200 && status != http.StatusSwitchingProtocols {
			continue // the answer must follow (RFC 9110, 15.2)
		}
		tunnel = !tunnel && opensTunnel(resp)
		start, _ := buffered.Peek(buffered.Size())
		whole := len(start) < buffered.Size() && resp.Header.Get("Content-Length") == strconv.Itoa(len(start)) // all is the content
		if (tunnel || mayBeFollowed(resp)) && !whole && anotherResponse().Match(start) {
			continue
		}
		bounded.N = MaxBody
		resp.Body = io.NopCloser(io.LimitReader(buffered, MaxBody))
		switch {
		case resp.Header.Get("Transfer-Encoding") != "": // it overrides Content-Length
			if hasChunks(buffered) {
				resp.Body = io.NopCloser(httputil.NewChunkedReader(resp.Body))
			}
		case resp.Header.Get("Content-Encoding") == "": // else curl may have unpacked it
			resp.ContentLength, _ = strconv.ParseInt(resp.Header.Get("Content-Length"), 10, 64)
		}
		return resp, nil
	}
	return nil, fmt.Errorf("it has more than %d responses", mostResponses)
}

// mayBeFollowed reports whether curl may have written another response right after a
// response's header: this one has no content, or curl dropped its content and sent the
// request again.
func mayBeFollowed(resp *http.Response) bool {
	switch status := resp.StatusCode; {
	case status == http.StatusSwitchingProtocols, status == http.StatusNoContent, status == http.StatusNotModified:
		return true
	case status/100 == 3: // curl -L
		return resp.Header.Get("Location") != ""
	case status == http.StatusUnauthorized: // curl --anyauth, --digest
		return resp.Header.Get("WWW-Authenticate") != ""
	case status == http.StatusProxyAuthRequired:
		return resp.Header.Get("Proxy-Authenticate") != ""
	case status == http.StatusExpectationFailed: // sent again without Expect
		return true
	}
	return resp.Header.Get("Content-Length") == "0"
}

// opensTunnel reports whether a response is a proxy's to CONNECT, which has no content (RFC
// 9110, 9.3.6): its reason says so, or it is one of HTTP/1 and has only fields that such
// answers have. Any other field may be an upstream's, whose content looks like a response.
func opensTunnel(resp *http.Response) bool {
	switch {
	case resp.StatusCode != http.StatusOK:
		return false
	case strings.HasSuffix(strings.ToLower(resp.Status), " established"):
		return true
	}
	for name := range resp.Header {
		if !strings.HasPrefix(name, "Proxy-") && !slices.Contains([]string{"Date", "Server", "Via", "Connection", "Keep-Alive"}, name) {
			return false
		}
	}
	return resp.ProtoMajor == 1
}

// readResponseHeader reads one status line and header.
func readResponseHeader(buffered *bufio.Reader) (*http.Response, error) {
	reader := textproto.NewReader(buffered)
	line, err := reader.ReadLine()
	found := statusLine().FindStringSubmatch(line)
	switch {
	case errors.Is(err, io.EOF) || err == nil && found == nil:
		return nil, errors.New("it has no status line, such as \"HTTP/1.1 200 OK\", where a response begins: write it with curl -i")
	case err != nil:
		return nil, err
	}
	major, _ := strconv.Atoi(found[1]) // a digit
	status, _ := strconv.Atoi(found[2])
	header, err := reader.ReadMIMEHeader()
	var malformed textproto.ProtocolError
	switch {
	case errors.As(err, &malformed): // the error would show the line, which may contain a secret
		return nil, errors.New("a line of its header has no name and value")
	case errors.Is(err, io.EOF) && len(header) == 0:
		return nil, fmt.Errorf("read its header: %w", io.ErrUnexpectedEOF)
	case err != nil && !errors.Is(err, io.EOF): // at io.EOF only the empty line is missing
		return nil, fmt.Errorf("read its header: %w", err)
	}
	return &http.Response{ProtoMajor: major, StatusCode: status, Status: strings.TrimSpace(found[3]), Header: http.Header(header)}, nil
}

// hasChunks reports whether a body begins with the length of a chunk.
func hasChunks(buffered *bufio.Reader) bool {
	start, _ := buffered.Peek(64)
	return chunkLine().Match(start)
}

// IsUnpacked reports whether a body is text and so has no encoding any more, whatever its
// header says.
func IsUnpacked(body []byte) bool {
	return json.Valid(body) || utf8.Valid(body) && !bytes.ContainsFunc(body, func(r rune) bool {
		return unicode.IsControl(r) && !strings.ContainsRune("\t\r\n\x1e", r)
	})
}

// lazily compiles a pattern when it is first used, so that no program pays for what it
// does not need.
func lazily(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}
