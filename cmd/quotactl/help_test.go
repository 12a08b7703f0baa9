package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// Each command says what it does, shows a use of it, and is on the page of commands.
func TestEveryCommandHasHelp(t *testing.T) {
	a := &app{env: noEnv, now: time.Now}
	page := string(must.Get(os.ReadFile("../../docs/commands.md"))(t))
	seen := 0
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		seen++
		if cmd.Short == "" || cmd.Example == "" {
			t.Errorf("%s has no summary or no example", cmd.CommandPath())
		}
		if !strings.Contains(page, cmd.CommandPath()) {
			t.Errorf("docs/commands.md does not name %s", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newRootCommand(a))
	if seen < 11 {
		t.Errorf("%d commands, want all of them", seen)
	}
}

// Completion knows what the configuration holds.
func TestCompletion(t *testing.T) {
	path := writeConfig(t, `[upstream.shop.costs]
"orders.get" = 1
"orders.export" = 40
[upstream.shop.limit.daily]
limit = 100
window = "24h"
[upstream.shop.credential.main]
[upstream.shop.credential.spare]
[job.pull]
budget = "shop/main"
schedule = "0 * * * *"
regions = ["US", "DE"]
command = ["true"]
[job.push]
budget = "shop/main"
schedule = "0 * * * *"
regions = ["US", "GB"]
command = ["true"]
`)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"charge", ""}, "shop/main\nshop/spare\n:4\n"},
		{[]string{"charge", "shop/main", ""}, "orders.export\norders.get\n:4\n"},
		{[]string{"exec", ""}, "shop/main\nshop/spare\n:4\n"},
		{[]string{"exec", "shop/main", ""}, "orders.export\norders.get\n:4\n"},
		{[]string{"exec", "shop/main", "orders.get", "--", ""}, ":0\n"},
		{[]string{"ledger", ""}, "shop/main\nshop/spare\n:4\n"},
		{[]string{"next", ""}, "pull\npush\n:4\n"},
		{[]string{"next", "pull", ""}, "push\n:4\n"},
		{[]string{"jobs", ""}, "pull\npush\n:4\n"},
		{[]string{"runs", "push", ""}, "pull\n:4\n"},
		{[]string{"runs", "--region", ""}, "DE\nGB\nUS\n:4\n"},
		{[]string{"runs", "--outcome", ""}, "running\nwaiting\nsucceeded\nexhausted\nfailed\ntimed_out\ndrained\nskipped\nmissed\nlost\n:4\n"},
		{[]string{"trigger", ""}, "pull\npush\n:4\n"},
		{[]string{"trigger", "pull", ""}, ":4\n"},
		{[]string{"trigger", "pull", "--region", ""}, "DE\nUS\n:4\n"},
		{[]string{"cancel", ""}, "pull\npush\n:4\n"},
		{[]string{"pause", ""}, "pull\npush\n:4\n"},
		{[]string{"pause", "pull", ""}, ":4\n"},
		{[]string{"resume", "pu"}, "pull\npush\n:4\n"},
		{[]string{"init", ""}, "github\nopenai\nshopify\nslack\nstrava\nyoutube\nyoutube-2025\n:4\n"},
		{[]string{"init", "github", ""}, "openai\nshopify\nslack\nstrava\nyoutube\nyoutube-2025\n:4\n"},
	} {
		got, _, code := runAt(t, time.Unix(0, 0), append([]string{cobra.ShellCompNoDescRequestCmd, c.args[0], "-c", path}, c.args[1:]...)...)
		check.Equal(t, got, c.want, c.args, "completes to")
		check.Equal(t, code, exitDone, c.args, "completes to")
	}
}
