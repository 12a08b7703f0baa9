package jobs

import (
	"crypto/rand"
	"encoding/hex"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/secret"
)

// readMeter reads whether the calls of the command are charged as they pass through, and whether
// its secret is kept from it.
func (j *Job) readMeter(t map[string]config.Node, upstream config.Upstream, known bool) {
	j.Meter, _ = t["meter"].Bool()
	j.KeepSecret, _ = t["keep_secret"].Bool()
	switch {
	case t["fetch"].Exists() && (j.Meter || j.KeepSecret):
		t["fetch"].Fail("job %s fetches: each page is charged before it is sent, and its secret is in no command's reach; take meter and keep_secret out", j.Name)
	case j.KeepSecret && !j.Meter:
		t["keep_secret"].Fail("keep_secret needs meter = true: only a meter can put the secret into the command's requests")
	case !known || !j.Meter:
	case !upstream.NamesHost():
		t["meter"].Fail("upstream %s names no host, so the meter would see none of its calls: give its operations a match, or write hosts or base_url in [upstream.%[1]s]", upstream.Name)
	case j.KeepSecret:
		j.checkKept(t["keep_secret"], upstream)
	}
}

// checkKept reports a secret that cannot be kept from the job's command.
func (j *Job) checkKept(node config.Node, upstream config.Upstream) {
	isSigned := slices.ContainsFunc([]string{"AWS4-", "HMAC", "SIGNATURE", "DIGEST", "DPOP"}, func(scheme string) bool {
		return strings.HasPrefix(strings.ToUpper(upstream.Secret.Prefix), scheme)
	})
	switch {
	case j.credential.SecretEnv == "" && j.credential.SecretFile == "":
		node.Fail("budget %s has no secret to keep: write secret_env = \"NAME\" in [upstream.%s.credential.%s]", j.Budget, upstream.Name, j.credential.Label)
	case upstream.Secret == config.Secret{}:
		node.Fail("upstream %s does not say where its requests carry the secret: write secret = { query = \"key\" }, or { header = \"Authorization\", prefix = \"Bearer \" }, in [upstream.%[1]s]; if they are signed with it, the command must have it: take keep_secret out", upstream.Name)
	case isSigned:
		node.Fail("requests to upstream %s are signed with the secret, so the command must have it: take keep_secret out", upstream.Name)
	case upstream.Tunnel:
		node.Fail("upstream %s has tunnel = true, so no secret can be put into its requests: take one of the two out", upstream.Name)
	}
	if file, err := os.Open(j.credential.SecretFile); err == nil {
		_ = file.Close() // nothing was read
		node.Warn("the secret of %s is in %s, which the command of job %s can read, too, if it runs as this user, as the daemon's commands do: name it by secret_env, and give the daemon that variable from a file that only root can read (EnvironmentFile of systemd)", j.Budget, j.credential.SecretFile, j.Name)
	}
}

// standIns makes a text of 256 random bits for each secret that a meter can put into requests,
// by the secret.
func standIns(cfg *config.Config, env func(string) (string, bool)) map[string]string {
	list := map[string]string{}
	for _, upstream := range cfg.Upstreams {
		if upstream.Secret == (config.Secret{}) || upstream.Tunnel {
			continue
		}
		for _, credential := range upstream.Credentials {
			if value := KnownSecret(credential, env); value != "" && list[value] == "" {
				bits := make([]byte, 32)
				_, _ = rand.Read(bits) // it never fails
				list[value] = hex.EncodeToString(bits)
			}
		}
	}
	return list
}

// withoutSecrets is an environment with stand-ins for secrets, and without the variables that
// contain another secret. QUOTACTL_SECRET is the stand-in of the job's own.
func (r *run) withoutSecrets(env []string, standIns map[string]string) []string {
	all := slices.Concat(slices.Collect(maps.Keys(standIns)), KnownSecrets(r.job.cfg, r.secrets.env), r.secrets.known())
	long := slices.DeleteFunc(slices.Clone(all), func(one string) bool { return len(one) < secret.Short }) // a short one may be a part of anything
	hide := secret.Hider("", long...)
	var kept []string
	for _, variable := range env {
		name, value, _ := strings.Cut(variable, "=")
		value = strings.TrimSpace(value)
		switch standIn := standIns[value]; {
		case standIn != "":
			kept = append(kept, name+"="+standIn)
		case name == "QUOTACTL_TOKEN" || value != "" && slices.Contains(all, value) || hide(value) != value:
		default:
			kept = append(kept, variable)
		}
	}
	return append(kept, "QUOTACTL_SECRET="+standIns[KnownSecret(r.job.credential, r.secrets.env)])
}
