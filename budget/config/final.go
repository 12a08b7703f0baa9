package config

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
)

// Final is the answer to a call that is refused for good. The zero value is the default answer.
type Final struct {
	Status int // 200 to 599
	// Body is JSON once [Final.Fill] has filled it in. Empty: the default body.
	Body string
}

// Fill is the body with a message in place of {message}, escaped for a JSON string, and with a
// status in place of {status}.
func (f Final) Fill(message string, status int) []byte {
	quoted, _ := json.Marshal(message) // a string always can be
	fill := strings.NewReplacer("{message}", string(quoted[1:len(quoted)-1]), "{status}", strconv.Itoa(status))
	return []byte(fill.Replace(f.Body))
}

// readFinal reads final.
func readFinal(node Node) (f Final) {
	if !node.Exists() {
		return f
	}
	t := node.Table("status", "body")
	f.Status = http.StatusForbidden
	if status, ok := t["status"].Number(200, 599); ok {
		f.Status = int(status)
	}
	switch f.Status {
	case http.StatusNoContent, http.StatusResetContent, http.StatusNotModified:
		t["status"].Fail("status = %d: such an answer has no body, so nobody would see why; use 403", f.Status)
	}
	f.Body, _ = filled(t["body"])
	if f.Body != "" && !json.Valid(f.Fill("x", f.Status)) {
		t["body"].Fail("body is not JSON once {message} and {status} are replaced: write '{\"error\":\"{message}\"}', with {message} inside a string")
	}
	return f
}
