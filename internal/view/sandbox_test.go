package view

import (
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/screen"
	"github.com/quotactl/quotactl/jobs/sandbox"
)

// A request is one line, whatever its client sent.
func TestCounted(t *testing.T) {
	on := screen.Screen{Terminal: true, Width: 80, Height: 24, Zone: time.UTC}
	at := time.Date(2026, 11, 27, 20, 40, 43, 0, time.UTC)
	for want, r := range map[string]sandbox.Request{
		"20:40:43   200  1 unit  1 of 10,000 used today  GET /youtube/v3/videos\n":                 {At: at, Method: "GET", Path: "/youtube/v3/videos", Units: 1, Status: 200, Used: 1},
		"20:40:43 ✗ 403 quotaExceeded  0 units  9,950 of 10,000 used today  GET /youtube…\n":       {At: at, Method: "GET", Path: "/youtube/v3/search", Status: 403, Reason: "quotaExceeded", Used: 9950},
		"20:40:43 ! no answer  100 units  100 of 10,000 used today  POST?[2J /?x\n":                {At: at, Method: "POST\x1b[2J", Path: "/\u202ex", Units: 100, Reason: "dropped", Used: 100},
		"20:40:43   200  0 units  0 of 10,000 used today  GET /" + strings.Repeat("x", 25) + "…\n": {At: at, Method: "GET", Path: "/" + strings.Repeat("x", 3000), Status: 200},
	} {
		check.Equal(t, Counted(on, r, 10_000), want, "line")
	}
	check.Contains(t, PointAt(on, "http://127.0.0.1:8080"), "\n  curl 'http://127.0.0.1:8080/youtube/v3/videos?chart=mostPopular&part=id&key=any'\n")
}
