package jobs

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/secret"
)

// sandboxSecret replaces every secret when a sandbox replaces the upstream.
const sandboxSecret = "sandbox"

// ping reads where the address is that the job calls.
func (l *loader) ping(t map[string]config.Node, j *Job) {
	if text, ok := t["ping"].Text(); ok {
		if to, err := url.Parse(text); err != nil || to.Scheme != "http" && to.Scheme != "https" || to.Host == "" {
			t["ping"].Fail("ping is not an address: write one that begins with https:// or http:// and a host")
		}
		if t["ping_env"].Exists() || t["ping_file"].Exists() {
			t["ping"].Fail("ping is given beside ping_env or ping_file: keep one")
		}
		j.Ping.URL = text
	}
	j.Ping.Env, j.Ping.File = l.cfg.SecretAt("the ping address of job "+j.Name, t["ping_env"], t["ping_file"])
}

// CheckSecrets checks that every job's secret can be read, without keeping any; env is
// os.LookupEnv. The error has a line for each that is missing.
func CheckSecrets(list []*Job, env func(name string) (string, bool)) error {
	var errs []error
	for _, j := range list {
		if _, err := j.secret(env); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// secrets are those that runs may have; they must never be shown or stored.
type secrets struct {
	sandbox bool // a sandbox replaces the upstreams: there are no secrets
	env     func(name string) (string, bool)
	others  func() []string // as in [Options.Secrets]
}

// of is the secret of a job's requests.
func (s *secrets) of(j *Job) (string, error) {
	if s.sandbox {
		return sandboxSecret, nil
	}
	return j.secret(s.env)
}

// hide removes the secret from a text. The sandbox's is not secret, and a text may well
// contain that word.
func (s *secrets) hide(text, hidden string) string {
	if s.sandbox {
		return text
	}
	return secret.Redact(text, hidden)
}

// hider removes the secrets from a run's lines, and their stand-ins.
func (s *secrets) hider(j *Job, standIns map[string]string) func(string) string {
	if s.sandbox {
		return func(text string) string { return text }
	}
	return secret.Hider(KnownSecret(j.credential, s.env), slices.AppendSeq(s.known(), maps.Values(standIns))...)
}

// finder reports whether a text that is to be stored contains a secret.
func (s *secrets) finder(j *Job) func(text string) bool {
	hide := sync.OnceValue(func() func(string) string {
		if s.sandbox {
			return s.hider(j, nil)
		}
		return secret.Hider("", append(s.known(), KnownSecret(j.credential, s.env))...) // a long secret is found by its pieces, too
	})
	return func(text string) bool { return hide()(text) != text }
}

// known are the secrets besides a job's own.
func (s *secrets) known() []string {
	if s.others == nil {
		return nil
	}
	return slices.Clone(s.others())
}

// secret reads the credential's secret and trims white space, which a shell or an editor
// may have left and which no header keeps; empty if the job sends none.
func (j *Job) secret(env func(string) (string, bool)) (string, error) {
	if !j.KeepSecret && (j.Fetch == nil || j.Fetch.Secret == (config.Secret{})) {
		return "", nil
	}
	advice := "or try without a key: quotactl run --once --sandbox"
	if j.KeepSecret {
		advice = "or take keep_secret out of the job"
	}
	if name := j.credential.SecretEnv; name != "" {
		value, _ := env(name)
		if value = strings.TrimSpace(value); value != "" {
			return value, j.checkSecret(value)
		}
		return "", fmt.Errorf("job %s: the environment has no %s, the secret of %s: set it, %s", j.Name, config.VariableText(name), j.Budget, advice)
	}
	value, err := config.ReadSecret(j.credential.SecretFile)
	if err != nil {
		return "", fmt.Errorf("job %s: read the secret of %s: %w: write the file, %s", j.Name, j.Budget, err, advice)
	}
	if secret := strings.TrimSpace(string(value)); secret != "" {
		return secret, j.checkSecret(secret)
	}
	return "", fmt.Errorf("job %s: %s, the secret of %s, is empty: write it, %s", j.Name, j.credential.SecretFile, j.Budget, advice)
}

// checkSecret rejects a secret that cannot be sent the way the job sends it.
func (j *Job) checkSecret(secret string) error {
	control := func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }
	if inQuery := j.Fetch != nil && j.Fetch.Secret.Header == ""; !inQuery && strings.ContainsFunc(secret, control) {
		return fmt.Errorf("job %s: the secret of %s contains a control character, such as a line break, which no header can carry: write it on one line", j.Name, j.Budget)
	}
	return nil
}

// KnownSecrets returns the secrets that a configuration names and that can be read now:
// its credentials' and the store's password, except one in the store's URL. They are for
// [Options.Secrets]; env is os.LookupEnv.
func KnownSecrets(cfg *config.Config, env func(name string) (string, bool)) []string {
	sources := []config.Credential{{SecretEnv: cfg.Store.PasswordEnv, SecretFile: cfg.Store.PasswordFile}}
	for _, upstream := range cfg.Upstreams {
		sources = append(sources, upstream.Credentials...)
	}
	var known []string
	for _, source := range sources {
		if secret := KnownSecret(source, env); secret != "" {
			known = append(known, secret)
		}
	}
	return known
}

// KnownSecret is a credential's secret, to find it in what a command prints or sends; empty
// if it cannot be read.
func KnownSecret(credential config.Credential, env func(string) (string, bool)) string {
	if credential.SecretEnv != "" {
		value, _ := env(credential.SecretEnv)
		return strings.TrimSpace(value)
	}
	if credential.SecretFile == "" {
		return ""
	}
	value, err := config.ReadSecret(credential.SecretFile)
	if err != nil {
		return "" // then the command cannot have read it either, at least not in the same way
	}
	return strings.TrimSpace(string(value))
}
