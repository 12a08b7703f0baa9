package gateway

import (
	"cmp"
	_ "embed"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

//go:embed hooks/sitecustomize.py
var pythonHook string

//go:embed hooks/hook.cjs
var nodeHook string

// environment has the variables of a command by name.
type environment map[string]string

// newEnvironment reads the form of os.Environ.
func newEnvironment(entries []string) environment {
	e := environment{}
	for _, entry := range slices.Backward(entries) { // the first of two counts
		name, value, _ := strings.Cut(entry, "=")
		e[name] = value
	}
	return e
}

// set gives variables a value, or removes them if that is empty.
func (e environment) set(value string, names ...string) {
	for _, name := range names {
		e[name] = value
		if value == "" {
			delete(e, name)
		}
	}
}

// compose makes the environment, and the files that it names, for programs that are to trust a set
// of roots.
func (s *surroundings) compose(o surroundOptions, trusted *trust) error {
	s.setProxy(o)
	strict := o.noHooks || s.vars["CURL_CA_BUNDLE"]+s.vars["REQUESTS_CA_BUNDLE"] != ""
	s.vars.set("", removedVariables...)
	bundle := s.write("bundle.pem", 0o644, trusted.pem)
	s.vars.set(bundle, bundleVariables...)
	if strict {
		s.vars.set(bundle, strictVariables...)
	}
	s.write("quotactl.ini", 0o644, []byte("curl.cainfo=\""+bundle+"\"\nopenssl.cafile=\""+bundle+"\"\n"))
	s.vars.set(s.vars["PHP_INI_SCAN_DIR"]+":"+s.folder, "PHP_INI_SCAN_DIR")
	s.setWget(bundle)
	s.vars.set("", "QUOTACTL_METER_CA", "QUOTACTL_METER_DIRECT", "QUOTACTL_METER_UID") // another meter's
	if !o.noHooks {
		s.setHooks(o)
	}
	if o.java {
		s.setJava(o.direct, trusted)
	}
	for name, value := range s.vars {
		s.env = append(s.env, name+"="+value)
	}
	return s.err
}

// write makes a file in the folder, and returns its path.
func (s *surroundings) write(name string, mode os.FileMode, data []byte) string {
	path := filepath.Join(s.folder, name)
	err := os.WriteFile(path, data, mode)
	if err == nil {
		err = os.Chmod(path, mode) // whatever the umask
	}
	s.err = cmp.Or(s.err, err)
	return path
}

func (s *surroundings) setProxy(o surroundOptions) {
	address := url.URL{Scheme: "http", User: url.UserPassword(proxyUser, o.token), Host: o.proxy}
	s.vars.set(address.String(), "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy")
	kept, removed := exemptions(s.vars, o.hosts)
	s.vars.set(strings.Join(kept, ","), "NO_PROXY", "no_proxy")
	if len(removed) > 0 {
		s.said = append(s.said, "NO_PROXY covers metered hosts: the command runs without its "+strings.Join(removed, ", "))
	}
	s.vars.set("1", "NODE_USE_ENV_PROXY", "PERL_LWP_ENV_PROXY")
	s.vars.set(o.proxy, "QUOTACTL_METER")
	s.vars.set(strings.Join(o.hosts, ","), "QUOTACTL_METER_HOSTS")
}

// setWget adds to the user's settings. These may have passwords: nobody else may read the copy.
func (s *surroundings) setWget(bundle string) {
	path := cmp.Or(s.vars["WGETRC"], filepath.Join(s.vars["HOME"], ".wgetrc"))
	settings, mode := []byte("ca_certificate = "+bundle+"\n"), os.FileMode(0o644)
	if users, err := os.ReadFile(path); err == nil {
		settings, mode = append(append(users, '\n'), settings...), 0o600
	} else if !os.IsNotExist(err) {
		s.said = append(s.said, "wget runs without its settings: "+err.Error())
	}
	s.vars.set(s.write("wgetrc", mode, settings), "WGETRC")
}

// setHooks makes Python and Node load the hooks, after what they load without them.
func (s *surroundings) setHooks(o surroundOptions) {
	s.write("sitecustomize.py", 0o644, []byte(pythonHook))
	s.vars.set(strings.TrimSuffix(s.folder+":"+s.vars["PYTHONPATH"], ":"), "PYTHONPATH")
	s.add("NODE_OPTIONS", "--require "+s.write("hook.cjs", 0o644, []byte(nodeHook)))
	s.vars.set(s.write("root.pem", 0o644, o.ca), "QUOTACTL_METER_CA")
	if o.direct != "" {
		s.vars.set(o.direct, "QUOTACTL_METER_DIRECT")
		s.vars.set(strconv.Itoa(os.Geteuid()), "QUOTACTL_METER_UID")
	}
}

// setJava names the listener that asks for no password, since Java sends a proxy none.
func (s *surroundings) setJava(direct string, trusted *trust) {
	host, port, _ := net.SplitHostPort(direct)
	roots, err := keyStore(trusted.certs, time.Now())
	s.err = cmp.Or(s.err, err)
	store := s.write("roots.jks", 0o644, roots)
	if strings.Contains(s.vars["JAVA_TOOL_OPTIONS"], "javax.net.ssl.trustStore=") {
		s.said = append(s.said, "JAVA_TOOL_OPTIONS names a trustStore: Java does not use it, but the system's roots")
	}
	for _, scheme := range []string{"http", "https"} {
		s.add("JAVA_TOOL_OPTIONS", "-D"+scheme+".proxyHost="+host+" -D"+scheme+".proxyPort="+port)
	}
	s.add("JAVA_TOOL_OPTIONS", "-Djavax.net.ssl.trustStoreType=JKS -Djavax.net.ssl.trustStorePassword="+storePassword+" -Djavax.net.ssl.trustStore="+store)
}

// add appends to a variable that has options: the later of two that contradict counts.
func (s *surroundings) add(variable, options string) {
	s.vars.set(strings.TrimSpace(s.vars[variable]+" "+options), variable)
}

// neverProxied are this machine, and where clouds give a machine its credentials.
var neverProxied = []string{"localhost", "127.0.0.1", "::1", "169.254.169.254", "169.254.170.2", "fd00:ec2::254", "metadata.google.internal"}

// exemptions divides the entries of NO_PROXY, in both cases since programs differ in which they
// read, into those that the command keeps, with neverProxied, and those that cover a metered host.
func exemptions(env environment, hosts []string) (kept, removed []string) {
	isSeparator := func(r rune) bool { return strings.ContainsRune(", \t", r) }
	entries := strings.FieldsFunc(env["NO_PROXY"]+","+env["no_proxy"], isSeparator)
	for i, entry := range slices.Concat(entries, neverProxied) {
		covers := slices.ContainsFunc(hosts, func(host string) bool {
			return exempts(entry, host) && (host != "*" || !slices.Contains(neverProxied, entry))
		})
		if !covers && !slices.Contains(kept, entry) {
			kept = append(kept, entry)
		}
		if covers && i < len(entries) && !slices.Contains(removed, entry) {
			removed = append(removed, entry)
		}
	}
	return kept, removed
}

// exempts reports whether some program takes an entry of NO_PROXY to cover a host, or any host
// that it stands for. requests compares ends of words: "example.com" covers "myexample.com", too.
func exempts(entry, host string) bool {
	if _, err := netip.ParsePrefix(entry); err == nil {
		return false
	}
	name := strings.ToLower(entry)
	if before, _, err := net.SplitHostPort(name); err == nil {
		name = before
	}
	name = strings.Trim(name, "*.[]")
	below, isPattern := strings.CutPrefix(host, "*")
	return strings.HasSuffix(below, name) || isPattern && strings.HasSuffix(name, below)
}
