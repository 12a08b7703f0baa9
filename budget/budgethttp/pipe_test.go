package budgethttp_test

import (
	"context"
	"net"
	"net/http"
	"testing"

	"github.com/quotactl/quotactl/internal/pipetest"
)

// serve runs a server on a network in memory; its base is the clients' side. All
// ends with the test.
func serve(t *testing.T, handler http.HandlerFunc) *http.Transport {
	t.Helper()
	base := &http.Transport{DialContext: pipetest.Serve(t, handler)}
	t.Cleanup(base.CloseIdleConnections)
	return base
}

// refuse is a network on which nobody listens.
func refuse(context.Context, string, string) (net.Conn, error) {
	return nil, &net.OpError{Op: "dial", Net: "pipe", Err: net.ErrClosed}
}
