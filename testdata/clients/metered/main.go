// Command metered is a program that calls the APIs of TestMeteredClients with net/http and
// gRPC, as any program does that knows nothing of a meter. It runs the scenarios that its
// arguments name, prints NAME: RESULT for each, and ends with 1 at the first that fails.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
)

func main() {
	ctx := context.Background()
	scenarios := map[string]func(context.Context) (string, error){
		"token": token, "absolute": absolute, "link": link,
		"upload": upload, "resumable": resumable,
		"events": events, "gzip": gzipped, "br": brotlied, "zstd": zstandard,
		"head": head, "etag": etag, "moved": moved, "away": away, "slow": slow, "parallel": parallel,
		"unary": unary, "streams": streams, "statuses": statuses,
	}
	names := os.Args[1:]
	if len(names) > 0 && names[0] == "clone" {
		// A transport of the program's own, as most libraries make it.
		client.Transport = http.DefaultTransport.(*http.Transport).Clone()
		names = names[1:]
	}
	for _, name := range names {
		result, err := scenarios[name](ctx)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			os.Exit(1)
		}
		fmt.Printf("%s: %s\n", name, result)
	}
}
