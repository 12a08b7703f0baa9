package jobs

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
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

// secret is what a job's requests carry.
func (r *Runner) secret(j *Job) (string, error) {
	if r.options.Sandbox != nil {
		return sandboxSecret, nil
	}
	return j.secret(r.options.Env)
}

// secret reads the credential's secret; empty when the job attaches none.
func (j *Job) secret(env func(string) (string, bool)) (string, error) {
	if j.Fetch == nil || j.Fetch.SecretQuery == "" && j.Fetch.SecretHeader == "" {
		return "", nil
	}
	const advice = "or try without a key: quotactl run --once --sandbox"
	if name := j.credential.SecretEnv; name != "" {
		if value, ok := env(name); ok && value != "" {
			return value, nil
		}
		return "", fmt.Errorf("job %s: the environment has no %s, the secret of %s: set it, %s", j.Name, name, j.Budget, advice)
	}
	value, err := os.ReadFile(j.credential.SecretFile)
	if err != nil {
		return "", fmt.Errorf("job %s: read the secret of %s: %w: write the file, %s", j.Name, j.Budget, err, advice)
	}
	if secret := strings.TrimSpace(string(value)); secret != "" {
		return secret, nil
	}
	return "", fmt.Errorf("job %s: %s, the secret of %s, is empty: write it, %s", j.Name, j.credential.SecretFile, j.Budget, advice)
}

// redacted is the error's text without the secret.
func redacted(err error, secret string) error {
	return errors.New(redactText(err.Error(), secret))
}

// redactText takes the secret out, in any form in which an upstream or the
// network may have repeated it.
func redactText(text, secret string) string {
	if secret == "" {
		return text
	}
	for _, form := range []string{secret, url.QueryEscape(secret), url.PathEscape(secret)} {
		text = strings.ReplaceAll(text, form, "[secret]")
	}
	return text
}
