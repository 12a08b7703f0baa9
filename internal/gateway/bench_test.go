package gateway

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/redistest"
	"github.com/quotactl/quotactl/internal/storetest"
)

// benchWorld meters what is below /metered, and passes on all else.
const benchWorld = `
[store]
url = "%s"
[upstream.any]
base_url = "https://api.example.com/metered"
unknown_operation = 1
[upstream.any.limit.day]
quota = 1_000_000_000
window = "24h"
[upstream.any.credential.main]
`

// BenchmarkGateway compares, turn by turn, requests that are metered with requests to a path of
// the same host that nobody owns, which is what a bare proxy with the same CA does. Each
// goroutine has a connection of its own, which is kept. ratio is the rate of the metered ones
// divided by that of the bare ones; the processor time is that of this process, which plays
// program, gateway and upstream.
func BenchmarkGateway(b *testing.B) {
	server := redistest.Start(b)
	for _, store := range []struct{ name, url string }{{"Redis", server.URL(0)}, {"SQLite", "sqlite:quotactl.db"}} {
		for _, n := range []int{1, 64, 256} {
			b.Run(fmt.Sprintf("%s/goroutines=%d", store.name, n), func(b *testing.B) { benchGateway(b, store.url, n) })
		}
	}
}

func benchGateway(b *testing.B, store string, n int) {
	w := newWorld(b, fmt.Sprintf(benchWorld, store), func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	client := w.client(false)
	client.Transport.(*http.Transport).MaxIdleConnsPerHost = n
	bare, metered := storetest.Get(client, "https://api.example.com/bare"), storetest.Get(client, "https://api.example.com/metered/x")
	storetest.Rate(b, n, 100*time.Millisecond, bare) // the connections are made
	storetest.Metered(b, n, metered, bare)
}
