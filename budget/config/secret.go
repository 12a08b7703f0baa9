package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"unicode/utf8"
)

// secretPlace is where the configuration says that a secret is.
type secretPlace struct {
	of        string // whose secret it is, in words
	node      Node   // the node that says so
	env, file string // one of the two
}

// noteSecret notes a place, unless the configuration has an error there.
func (c *Config) noteSecret(of string, atEnv Node, env string, atFile Node, file string) {
	switch {
	case env != "":
		c.secrets = append(c.secrets, secretPlace{of: of, node: atEnv, env: env})
	case file != "":
		c.secrets = append(c.secrets, secretPlace{of: of, node: atFile, file: file})
	}
}

// SecretAt reads where a secret is that a job names: in a variable of the environment, or in a
// file. what names it in messages.
func (c *Config) SecretAt(what string, inEnv, inFile Node) (env, file string) {
	return c.readSecret(what, inEnv, inFile)
}

// SecretPlaces is where the configuration says that secrets are: those of credentials and
// alerts, the store's password, and what jobs have read with [Config.SecretAt]. None has a
// label.
func (c *Config) SecretPlaces() (list []Credential) {
	for _, place := range c.secrets {
		list = append(list, Credential{SecretEnv: place.env, SecretFile: place.file})
	}
	return list
}

// MissingSecrets lists, by line, each secret that is not where the configuration says, has
// fewer characters than short, or is in a file that every user can read; env is os.LookupEnv.
// It neither keeps nor shows secrets.
func (c *Config) MissingSecrets(env func(name string) (string, bool), short int) Errors {
	var list Errors
	for _, place := range c.secrets {
		if missing := place.missing(env, short); missing != "" {
			list = append(list, Error{c.doc.file, place.node.Line(), fmt.Sprintf("%s: %s", place.of, missing)})
		}
	}
	return sorted(list)
}

// missing says what is wrong with the place or its secret, and what to do; empty if nothing is.
func (p secretPlace) missing(env func(string) (string, bool), short int) string {
	if p.env != "" {
		value, _ := env(p.env)
		if strings.TrimSpace(value) == "" {
			return fmt.Sprintf("the environment has no %s; set it where the daemon and its commands run", VariableText(p.env))
		}
		return tooShort(value, short)
	}
	info, err := os.Stat(p.file) // do not read from a pipe: the daemon needs what it contains
	var text []byte
	if err == nil && info.Mode()&fs.ModeNamedPipe == 0 {
		text, err = ReadSecret(p.file)
	}
	var fault *fs.PathError
	switch {
	case errors.As(err, &fault) && fault.Op != "stat" && errors.Is(err, fs.ErrPermission):
		return "" // the daemon may be another user
	case errors.As(err, &fault):
		return fmt.Sprintf("%s: %s; write the file, or name another", p.file, fault.Err)
	case err != nil:
		return err.Error() + "; name the file that holds the secret"
	case info.Mode()&fs.ModeNamedPipe != 0:
		return p.file + " is a pipe, not a regular file; name the file that holds the secret"
	case strings.TrimSpace(string(text)) == "":
		return p.file + " is empty; write the secret into it"
	case info.Mode()&0o004 != 0:
		return p.file + " has a mode that lets every user read it; run chmod o-r on it, unless its folder is closed to them"
	}
	return tooShort(string(text), short)
}

func tooShort(secret string, short int) string {
	if utf8.RuneCountInString(strings.TrimSpace(secret)) >= short {
		return ""
	}
	return fmt.Sprintf("the secret has fewer than %d characters, so logs hide it only where it is a whole word; use a longer one", short)
}
