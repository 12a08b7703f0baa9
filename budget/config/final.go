package config

import (
	"encoding/json"
	"net/http"
	"strings"
)

// Final is what a call is answered that is refused for good. Its zero value is the default
// answer.
type Final struct {
	Status int // 200 to 599
	// Body is JSON once [FinalMessage] in it is replaced by text that is escaped for a JSON
	// string. Empty: the default body.
	Body string
}

// FinalMessage is what a body of [Final] has in place of the message.
const FinalMessage = "{message}"

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
	if f.Body != "" && !json.Valid([]byte(strings.ReplaceAll(f.Body, FinalMessage, "x"))) {
		t["body"].Fail("body is not JSON once %s is replaced: write '{\"error\":\"%s\"}', with %s inside a string", FinalMessage, FinalMessage, FinalMessage)
	}
	return f
}
