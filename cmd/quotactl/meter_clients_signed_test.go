package main

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"strings"
)

// The key with which testdata/clients/python/boto3_client.py signs.
const awsSecret = "an-example"

// isSigned reports whether a request's Signature Version 4 is right: the upstream computes it anew
// from the method, the path, the query, the signed headers and the body as they arrived.
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
func isSigned(r *http.Request) bool {
	fields := map[string]string{}
	for part := range strings.SplitSeq(strings.TrimPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 "), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		fields[name] = value
	}
	_, scope, _ := strings.Cut(fields["Credential"], "/")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return false
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	canonical := r.Method + "\n" + cmp.Or(r.URL.EscapedPath(), "/") + "\n" + r.URL.RawQuery + "\n"
	for name := range strings.SplitSeq(fields["SignedHeaders"], ";") {
		value := r.Header.Get(name)
		if name == "host" {
			value = r.Host
		}
		canonical += name + ":" + strings.TrimSpace(value) + "\n"
	}
	canonical += "\n" + fields["SignedHeaders"] + "\n" + hexDigest(body)
	key := []byte("AWS4" + awsSecret)
	for part := range strings.SplitSeq(scope, "/") {
		key = keyedDigest(key, part)
	}
	toSign := "AWS4-HMAC-SHA256\n" + r.Header.Get("X-Amz-Date") + "\n" + scope + "\n" + hexDigest([]byte(canonical))
	return fields["Signature"] == hex.EncodeToString(keyedDigest(key, toSign))
}

func hexDigest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

func keyedDigest(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write([]byte(text)) // it never fails
	return mac.Sum(nil)
}
