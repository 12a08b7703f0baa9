package sandbox_test

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/quotactl/quotactl/jobs/sandbox"
)

// A day of 101 units holds one search and one list.
func Example() {
	upstream, err := sandbox.New(sandbox.Config{Quota: 101})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = upstream.Close() }()
	if err := upstream.Listen(context.Background(), ""); err != nil {
		fmt.Println(err)
		return
	}
	for _, call := range []string{
		"/youtube/v3/search?q=cats&key=any",
		"/youtube/v3/videos?chart=mostPopular&regionCode=US&key=any",
		"/youtube/v3/videos?chart=mostPopular&regionCode=GB&key=any",
		"/_sandbox/usage",
	} {
		resp, err := http.Get(upstream.URL() + call)
		if err != nil {
			fmt.Println(err)
			return
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if call == "/_sandbox/usage" {
			fmt.Println(string(body))
			continue
		}
		fmt.Println(resp.Status)
	}
	// Output:
	// 200 OK
	// 200 OK
	// 403 Forbidden
	// {"requests":3,"units":101,"rejected":1}
}
