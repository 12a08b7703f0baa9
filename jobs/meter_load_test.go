package jobs

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

const meterJob = `
[upstream.shop]
base_url = "https://shop.invalid"
secret = { query = "key" }
[upstream.shop.costs]
"list" = 1
[upstream.shop.limit.daily]
limit = 100
window = "24h"
[upstream.shop.credential.main]
secret_env = "SHOP_KEY"
[job.pull]
budget = "shop/main"
schedule = "@daily"
command = ["sh"]
meter = true
keep_secret = true
`

// A job whose calls cannot be metered, or whose secret cannot be kept, is an error that says what to
// write.
func TestLoadMeter(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	must.Do(t, os.WriteFile(file, []byte("a-s3cret"), 0o600))
	for _, c := range []struct{ from, to, fault, warning string }{
		{"", "", "", ""},
		{"keep_secret = true", "", "", ""},
		{"meter = true\nkeep_secret = true", "meter = false\nkeep_secret = false", "", ""},
		{"meter = true", "meter = 1", "meter", ""},
		{"meter = true", "", "keep_secret needs meter = true", ""},
		{`base_url = "https://shop.invalid"`, "", "upstream shop names no host, so the meter would see none of its calls: give its operations a match, or write hosts or base_url in [upstream.shop]", ""},
		{`base_url = "https://shop.invalid"`, `hosts = ["shop.invalid"]`, "", ""},
		{`"list" = 1`, `"list" = { units = 1, match = "GET shop.invalid/" }`, "", ""},
		{`secret_env = "SHOP_KEY"`, "", "budget shop/main has no secret to keep: write secret_env", ""},
		{`secret = { query = "key" }`, "", "upstream shop does not say where its requests carry the secret", ""},
		{`{ query = "key" }`, `{ header = "Authorization", prefix = "AWS4-HMAC-SHA256 " }`, "are signed with the secret, so the command must have it", ""},
		{`{ query = "key" }`, `{ header = "Authorization", prefix = "Bearer " }`, "", ""},
		{`secret = {`, "tunnel = true\nsecret = {", "upstream shop has tunnel = true, so no secret can be put into its requests", ""},
		{`secret_env = "SHOP_KEY"`, fmt.Sprintf("secret_file = %q", file), "", "the secret of shop/main is in " + file + ", which the command of job pull can read, too"},
		{`secret_env = "SHOP_KEY"`, fmt.Sprintf("secret_file = %q", file+"-of-another-user"), "", ""},
		{`command = ["sh"]`, `started_by = "cron"`, "meter says how a daemon starts job pull, but cron starts it", ""},
		{`command = ["sh"]`, "", "job pull fetches: each page is charged before it is sent", ""},
	} {
		must.Equal(t, strings.Contains(meterJob, c.from), true, c.from)
		text := strings.Replace(meterJob, c.from, c.to, 1)
		if c.from == `command = ["sh"]` && c.to == "" {
			text += "[job.pull.fetch]\noperation = \"list\"\nurl = \"https://shop.invalid/\"\noutput = \"{tick}\"\n"
		}
		path := filepath.Join(t.TempDir(), "costs.toml")
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		cfg := must.Get(config.Parse(path))(t)
		Load(cfg)
		fault := ""
		if err := cfg.Err(); err != nil {
			fault = err.Error()
		}
		check.Equal(t, strings.Contains(fault, c.fault) && (c.fault != "" || fault == ""), true, c.to, "for", c.from, "is an error:", fault)
		warned := fmt.Sprint(cfg.Warnings())
		check.Equal(t, strings.Contains(warned, c.warning) && (c.warning != "" || !strings.Contains(warned, "secret")), true, c.to, "for", c.from, "warns:", warned)
	}
}

// A command's environment has stand-ins where a variable is a secret that can be put in, and none of
// the variables that contain a secret in any form; a short secret is a variable, not a part of one.
func TestWithoutSecrets(t *testing.T) {
	text := meterJob + `
[upstream.signed]
base_url = "https://signed.invalid"
[upstream.signed.credential.main]
secret_env = "SIGNED_KEY"
[upstream.same]
base_url = "https://same.invalid"
secret = { header = "X-Key" }
[upstream.same.credential.main]
secret_env = "SHOP_KEY"
[upstream.short]
base_url = "https://short.invalid"
secret = { header = "X-Key" }
[upstream.short.credential.main]
secret_env = "SHORT_KEY"
`
	path := filepath.Join(t.TempDir(), "costs.toml")
	must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	cfg := must.Get(config.Parse(path))(t)
	vars := map[string]string{"SHOP_KEY": " shop/s3cret=\n", "SIGNED_KEY": "signed-s3cret", "SHORT_KEY": "abc"}
	env := func(name string) (string, bool) { value, found := vars[name]; return value, found }
	r := &run{
		job:     &Job{cfg: cfg, credential: cfg.Upstreams[0].Credentials[0]},
		secrets: &secrets{env: env, others: func() []string { return []string{"the-store's-password"} }},
	}
	first, second := standIns(cfg, env), standIns(cfg, env)
	check.EqualSlices(t, slices.Sorted(maps.Keys(first)), []string{"abc", "shop/s3cret="}, "what is kept")
	shop, short := first["shop/s3cret="], first["abc"]
	check.Equal(t, len(shop) == 64 && shop != short && shop != second["shop/s3cret="], true, "the stand-ins differ", first, second)
	got := r.withoutSecrets([]string{
		"PATH=/bin:/abc", "HOME=/home/abc", "EMPTY=", "SHOP_KEY= shop/s3cret=\n", "SHORT_KEY=abc", "SIGNED_KEY=signed-s3cret",
		"URL=https://a/?key=shop%2Fs3cret%3D", "ENCODED=c2lnbmVkLXMzY3JldA==", "QUOTACTL_STORE=redis://:the-store's-password@db", "QUOTACTL_TOKEN=x", "REDIS=the-store's-password",
	}, first)
	check.EqualSlices(t, got, []string{"PATH=/bin:/abc", "HOME=/home/abc", "EMPTY=", "SHOP_KEY=" + shop, "SHORT_KEY=" + short, "QUOTACTL_SECRET=" + shop}, "the environment")
}
