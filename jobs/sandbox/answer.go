package sandbox

import (
	"bytes"
	"encoding/json"
	"net/http"
)

// Reasons that are counted, as in YouTube's errors and in the request log.
const (
	reasonQuotaExceeded = "quotaExceeded"
	reasonBackendError  = "backendError"
)

// answer is a response that has not been encoded yet.
type answer struct {
	status int
	reason string // empty for 200
	value  any
}

// body encodes the answer as YouTube does: indented JSON with a line end.
func (a answer) body() []byte { return encodeJSON(a.value, "  ") }

// errorBody is YouTube's shape of an error.
type errorBody struct {
	Error errorInfo `json:"error"`
}

type errorInfo struct {
	Code    int         `json:"code"`
	Message string      `json:"message"`
	Errors  []errorItem `json:"errors"`
	Status  string      `json:"status,omitempty"`
}

type errorItem struct {
	Message      string `json:"message"`
	Domain       string `json:"domain"`
	Reason       string `json:"reason"`
	Location     string `json:"location,omitempty"`
	LocationType string `json:"locationType,omitempty"`
}

// fault makes an error answer of one item. rpc is the status of Google's newer errors, empty for the older.
func fault(status int, rpc string, item errorItem) answer {
	return answer{status, item.Reason, errorBody{errorInfo{status, item.Message, []errorItem{item}, rpc}}}
}

// badParameter is YouTube's answer to an invalid query parameter.
func badParameter(name, reason, message string) answer {
	return fault(http.StatusBadRequest, "", errorItem{
		Message: message, Domain: "youtube.parameter", Reason: reason, Location: name, LocationType: "parameter",
	})
}

// internalError reports a problem of the sandbox itself; the request was not counted.
func internalError(err error) answer {
	return fault(http.StatusInternalServerError, "INTERNAL", errorItem{
		Message: "sandbox: " + err.Error(), Domain: "global", Reason: "internalError",
	})
}

var (
	quotaExceeded = fault(http.StatusForbidden, "", errorItem{
		Message: `The request cannot be completed because you have exceeded your <a href="/youtube/v3/getting-started#quota">quota</a>.`,
		Domain:  "youtube.quota", Reason: reasonQuotaExceeded,
	})
	missingCredential = fault(http.StatusForbidden, "PERMISSION_DENIED", errorItem{
		Message: "Method doesn't allow unregistered callers (callers without established identity). " +
			"Please use API Key or other form of API consumer identity to call this API.",
		Domain: "global", Reason: "forbidden",
	})
	backendError = fault(http.StatusServiceUnavailable, "UNAVAILABLE", errorItem{
		Message: "The service is currently unavailable.", Domain: "global", Reason: reasonBackendError,
	})
	methodNotFound = fault(http.StatusNotFound, "NOT_FOUND", errorItem{
		Message: "Method not found.", Domain: "global", Reason: "notFound",
	})
)

// encodeJSON ends with a line end and leaves <, > and & as they are, as YouTube's bodies and a readable log have them.
func encodeJSON(v any, indent string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	if err := enc.Encode(v); err != nil {
		panic(err) // plain structs of strings and integers
	}
	return b.Bytes()
}
