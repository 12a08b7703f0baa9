package gateway

import (
	"cmp"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// surroundOptions is what the surroundings of a command are made from.
type surroundOptions struct {
	env           []string // as os.Environ has it
	hosts         []string // the metered hosts, as for newAuthority
	proxy         string   // the proxy's address, 127.0.0.1:port
	direct        string   // the address of the listener that goes by SNI; empty: there is none
	token         string   // the proxy's password
	ca            []byte   // the run's root, PEM
	noHooks, java bool
	temp          string // where the folder is made; empty: os.TempDir()
}

// surroundings is what a metered command finds around it: its environment, and a folder with the
// files that the environment names. No file holds a key or the token.
type surroundings struct {
	env   []string       // the command's environment
	roots *x509.CertPool // by which the proxy trusts upstreams: what programs trusted before
	said  []string       // what the user must know, a sentence each

	folder string
	lock   *os.File    // of the folder; the system ends it with this process
	vars   environment // becomes env
	err    error       // of the first file that could not be written
}

// surround makes the surroundings of a command. The caller closes them once it has ended.
func surround(o surroundOptions) (*surroundings, error) {
	if o.java && o.direct == "" {
		return nil, errors.New("--java: Java sends a proxy no password, and there is no listener here that asks for none: leave --java out")
	}
	if err := checkProxies(newEnvironment(o.env)); err != nil {
		return nil, err
	}
	trusted := trustedBefore(newEnvironment(o.env))
	roots := trusted.roots.Clone()
	trusted.add(o.ca)
	var failed error
	for _, base := range []string{cmp.Or(o.temp, os.TempDir()), "/dev/shm"} {
		s := &surroundings{roots: roots, said: trusted.said, vars: newEnvironment(o.env)}
		err := s.makeFolder(base)
		if err == nil {
			if err = s.compose(o, trusted); err == nil {
				return s, nil
			}
			_ = s.close() // err says more
		}
		failed = cmp.Or(failed, err)
	}
	return nil, fmt.Errorf("make a folder for the command's certificates: %w; set TMPDIR to a folder that can be written", failed)
}

// checkProxies finds variables of proxies that Go would ignore in silence. It does not show
// them: they may have a password.
func checkProxies(env environment) error {
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"} {
		address := env[name]
		if !strings.Contains(address, "://") {
			address = "http://" + address
		}
		if at, err := url.Parse(address); env[name] != "" && (err != nil || at.Host == "") {
			return fmt.Errorf("%s in the environment is not a proxy's address: write http://host:port, with special characters of a password escaped", name)
		}
	}
	if env["ALL_PROXY"]+env["all_proxy"] != "" && env["HTTPS_PROXY"]+env["https_proxy"] == "" {
		return errors.New("ALL_PROXY is set, and HTTPS_PROXY is not: set HTTPS_PROXY and HTTP_PROXY to the proxy, or unset ALL_PROXY if there is none")
	}
	return nil
}

// upstreamProxy is the proxy by this process's own variables; as http.Transport's Proxy.
func (*surroundings) upstreamProxy(u *url.URL) (*url.URL, error) {
	return http.ProxyFromEnvironment(&http.Request{URL: u})
}

// makeFolder makes a folder that all users may read, since the command may start programs as
// another user. It removes the folders of processes that were killed.
func (s *surroundings) makeFolder(base string) error {
	base, err := filepath.Abs(base)
	if err != nil {
		return err
	}
	if strings.ContainsAny(base, " \t\n:$\"'\\") {
		return fmt.Errorf("%q: variables such as PYTHONPATH and NODE_OPTIONS cannot name a folder there", base)
	}
	const prefix = "quotactl-meter-"
	abandoned, _ := filepath.Glob(filepath.Join(base, prefix+"*"))
	for _, path := range abandoned {
		if !isName(filepath.Base(path)[len(prefix):]) {
			continue // somebody else's
		}
		if lock, err := lockFolder(path); err == nil {
			_ = (&surroundings{folder: path, lock: lock}).close() // the next one tries again
		}
	}
	made, err := os.MkdirTemp(base, ".new-"+prefix) // no other process looks at it before it is locked
	if err != nil {
		return err
	}
	if err = os.Chmod(made, 0o755); err == nil { // whatever the umask
		s.lock, err = lockFolder(made)
	}
	if err == nil {
		s.folder = filepath.Join(base, prefix+rand.Text())
		err = os.Rename(made, s.folder)
	}
	if err != nil {
		return errors.Join(err, os.Remove(made))
	}
	return nil
}

// isName reports whether a name may be rand.Text's.
func isName(name string) bool {
	return len(name) == len(rand.Text()) && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

// lockFolder locks a folder of ours, unless it is a link, or a living process has it locked.
func lockFolder(path string) (*os.File, error) {
	folder, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	var is syscall.Stat_t
	if err = syscall.Fstat(int(folder.Fd()), &is); err == nil && int(is.Uid) != os.Geteuid() {
		err = os.ErrPermission
	}
	if err == nil {
		err = syscall.Flock(int(folder.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), folder.Close())
	}
	return folder, nil
}

// close removes the folder.
func (s *surroundings) close() error { return errors.Join(os.RemoveAll(s.folder), s.lock.Close()) }
