package jobs

import (
	"errors"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// upstreamsSecret is how the upstreams of tables say that a secret is sent.
const upstreamsSecret = "[upstream.youtube]\nsecret = { query = \"apikey\" }\n[upstream.open]\nsecret = { header = \"X-Key\" }\n"

// A fetch sends the secret as its upstream says. A command job has nothing to send.
func TestTheUpstreamSaysHowTheSecretIsSent(t *testing.T) {
	text, _ := broken("stagger", `"1m"`)
	cfg, list := read(t, text+upstreamsSecret+"[job.c]\nbudget = \"youtube/key1\"\nschedule = \"@daily\"\ncommand = [\"x\"]\n")
	must.Do(t, cfg.Err())
	check.Equal(t, len(cfg.Warnings()), 0, "warnings", cfg.Warnings())
	check.Equal(t, list[0].Fetch.Secret, config.Secret{Query: "apikey"}, "secret of the fetch")
}

func TestASecretOfFetchAndUpstream(t *testing.T) {
	for _, test := range []struct {
		tells   string
		changes []string
	}{
		{"keep one", []string{"fetch.secret", `{ query = "key" }`}},
		{"keep one", []string{"fetch.secret", `{ query = "apikey" }`}},
		{"already carries the secret", []string{"fetch.next_page", `{ param = "apikey", from = "next" }`}},
		{"which carries the secret", []string{"fetch.url", `"https://upstream.test/{region}?apikey=1"`}},
	} {
		text, line := broken(test.changes...)
		cfg, _ := read(t, text+upstreamsSecret)
		var faults config.Errors
		if !errors.As(cfg.Err(), &faults) || len(faults) != 1 || !strings.Contains(faults[0].Message, test.tells) || faults[0].Line != line {
			t.Errorf("%v: %v, want one error of line %d that tells %q", test.changes, faults, line, test.tells)
		}
	}
}

// A credential without a secret, such as for anonymous calls, is no error: nothing is sent.
func TestAFetchWithoutASecretOfItsUpstream(t *testing.T) {
	text, _ := broken("budget", `"open/none"`, "fetch.operation", `"a.list"`)
	cfg, list := read(t, text+upstreamsSecret)
	must.Do(t, cfg.Err())
	check.Equal(t, list[0].Fetch.Secret, config.Secret{}, "secret")
	if all := cfg.Warnings().Error(); !strings.Contains(all, "budget open/none has no secret, so this fetch sends none: write secret_env") {
		t.Errorf("warnings %s", all)
	}
	must.Do(t, CheckSecrets(list, func(string) (string, bool) { return "", false }))
}
