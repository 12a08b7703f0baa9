package jobs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/secret"
)

// sandboxSecret stands for every secret when a sandbox stands for the upstream.
const sandboxSecret = "sandbox"

// CheckSecrets finds out whether every job's secret is there, without keeping
// any; env is os.LookupEnv. The error has a line for each that is missing.
func CheckSecrets(list []*Job, env func(name string) (string, bool)) error {
	var errs []error
	for _, j := range list {
		if _, err := j.secret(env); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// secrets are those that runs may come by, and of which nothing is to be shown or kept.
type secrets struct {
	sandbox bool // stands for the upstreams: there is no secret then
	env     func(name string) (string, bool)
	others  func() []string // as in [Options.Secrets]
}

// of is what a job's requests carry.
func (s *secrets) of(j *Job) (string, error) {
	if s.sandbox {
		return sandboxSecret, nil
	}
	return j.secret(s.env)
}

// hide takes the secret out of a text. The sandbox's is none: a text may well
// hold that word.
func (s *secrets) hide(text, hidden string) string {
	if s.sandbox {
		return text
	}
	return secret.Redact(text, hidden)
}

// hider takes the secrets out of a run's lines.
func (s *secrets) hider(j *Job) func(string) string {
	if s.sandbox {
		return func(text string) string { return text }
	}
	return secret.Hider(knownSecret(j.credential, s.env), s.known()...)
}

// finder reports whether a text that is to be kept holds a secret.
func (s *secrets) finder(j *Job) func(text string) bool {
	hide := sync.OnceValue(func() func(string) string {
		if s.sandbox {
			return s.hider(j)
		}
		return secret.Hider("", append(s.known(), knownSecret(j.credential, s.env))...) // long ones are looked for in pieces
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

// secret reads the credential's secret, without the blanks and line's end
// that a shell or an editor may have left, and that no header keeps; empty when the job attaches none.
func (j *Job) secret(env func(string) (string, bool)) (string, error) {
	if j.Fetch == nil || j.Fetch.SecretQuery == "" && j.Fetch.SecretHeader == "" {
		return "", nil
	}
	const advice = "or try without a key: quotactl run --once --sandbox"
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

// checkSecret refuses what cannot be sent the way the job sends it.
func (j *Job) checkSecret(secret string) error {
	control := func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }
	if j.Fetch.SecretHeader != "" && strings.ContainsFunc(secret, control) {
		return fmt.Errorf("job %s: the secret of %s holds a control character, such as a line's end, which no header can carry: write it on one line", j.Name, j.Budget)
	}
	return nil
}

// KnownSecrets are the secrets that a configuration names and that can be read
// now: its credentials' and the store's password, but for one in the store's
// URL. They are for [Options.Secrets]; env is os.LookupEnv.
func KnownSecrets(cfg *config.Config, env func(name string) (string, bool)) []string {
	sources := []config.Credential{{SecretEnv: cfg.Store.PasswordEnv, SecretFile: cfg.Store.PasswordFile}}
	for _, upstream := range cfg.Upstreams {
		sources = append(sources, upstream.Credentials...)
	}
	var known []string
	for _, source := range sources {
		if secret := knownSecret(source, env); secret != "" {
			known = append(known, secret)
		}
	}
	return known
}

// knownSecret is the credential's secret where it can be read, so that it is
// taken out of what a command prints.
func knownSecret(credential config.Credential, env func(string) (string, bool)) string {
	if credential.SecretEnv != "" {
		value, _ := env(credential.SecretEnv)
		return strings.TrimSpace(value)
	}
	if credential.SecretFile == "" {
		return ""
	}
	value, err := config.ReadSecret(credential.SecretFile)
	if err != nil {
		return "" // the command cannot have read it either, or not as we would
	}
	return strings.TrimSpace(string(value))
}
