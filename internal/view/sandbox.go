package view

import (
	"fmt"

	"github.com/quotactl/quotactl/internal/screen"
	"github.com/quotactl/quotactl/internal/table"
	"github.com/quotactl/quotactl/jobs/sandbox"
)

// PointAt says how a job or a program uses a sandbox that listens at an address.
func PointAt(on screen.Screen, address string) string {
	return on.Wrap("", on.Faint("In the url of a job's fetch table, write this address in place of https://www.googleapis.com; for a program, set the base address of its API client to it. Any API key will do. Each request is shown below; Ctrl-C ends.")) +
		fmt.Sprintf("  curl '%s/youtube/v3/videos?chart=mostPopular&part=id&key=any'\n", address) // one line, to be copied
}

// Counted is a line for a request that a sandbox has counted.
func Counted(on screen.Screen, r sandbox.Request, quota int64) string {
	mark, status := "  ", on.Good(fmt.Sprint(r.Status))
	switch {
	case r.Status == 0:
		mark, status = on.Warn("! "), on.Warn("no answer")
	case r.Status >= 400:
		mark, status = on.Bad("✗ "), on.Bad(fmt.Sprint(r.Status))
	}
	if r.Reason != "" && r.Status != 0 {
		status += " " + Shown(r.Reason)
	}
	return table.Cut(on.Width, fmt.Sprintf("%s %s%s  %s  %s  %s %s", on.Faint(r.At.In(on.Zone).Format("15:04:05")), mark, status, Plural(int(r.Units), "unit"),
		on.Faint(fmt.Sprintf("%s of %s used today", on.Number(r.Used), on.Number(quota))), Shown(r.Method), Shown(r.Path))) + "\n"
}
