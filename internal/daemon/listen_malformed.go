package daemon

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"

	"github.com/quotactl/quotactl/internal/serve"
)

// When a request is so malformed that no handler gets it, net/http answers by itself. That
// answer begins with plainStatus and has plainHeader, or begins with one of the other two.
var (
	plainStatus   = []byte("HTTP/1.")
	plainHeader   = []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")
	plainNoTLS    = []byte("HTTP/1.0 400 Bad Request\r\n\r\n")
	plainExpected = []byte("HTTP/1.1 417 ")
)

// asProblem turns such an answer into a problem like all others; answer is nil for any
// other text. Over TLS the text is encrypted, so nothing is recognised.
func asProblem(plain []byte) (status int, answer []byte) {
	const at = len("HTTP/1.1 ") // of the status
	if len(plain) <= at || plain[at] != '4' && plain[at] != '5' || !bytes.HasPrefix(plain, plainStatus) {
		return 0, nil
	}
	reason, detail := "malformed", ""
	if _, text, ok := bytes.Cut(plain, plainHeader); ok {
		detail = string(text)
	} else if text, ok := bytes.CutPrefix(plain, plainNoTLS); ok {
		detail = strings.TrimSpace(string(text))
	} else if bytes.HasPrefix(plain, plainExpected) {
		detail = "send no Expect header other than 100-continue"
	} else {
		return 0, nil
	}
	if bytes.HasPrefix(plain[at:], []byte("431")) {
		reason, detail = "header_size", fmt.Sprintf("send a header of at most %d KiB", maxHeader>>10)
	}
	status, body := serve.Problem(reason, detail)
	return status, fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n%s",
		status, http.StatusText(status), serve.ProblemMedia, len(body), body)
}
