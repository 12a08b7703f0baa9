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

// composer changes an environment, and writes the files that it is to name.
type composer struct {
	*surroundings
	environment
	err error // of the first file that could not be written
}

// compose does so for programs that are to trust a set of roots.
func (c *composer) compose(o surroundOptions, trusted *trust) error {
	c.setProxy(o)
	strict := o.noHooks || c.environment["CURL_CA_BUNDLE"]+c.environment["REQUESTS_CA_BUNDLE"] != ""
	c.set("", removedVariables...)
	bundle := c.write("bundle.pem", 0o644, trusted.pem)
	c.set(bundle, bundleVariables...)
	if strict {
		c.set(bundle, strictVariables...)
	}
	c.write("quotactl.ini", 0o644, []byte("curl.cainfo=\""+bundle+"\"\nopenssl.cafile=\""+bundle+"\"\n"))
	c.set(c.environment["PHP_INI_SCAN_DIR"]+":"+c.folder, "PHP_INI_SCAN_DIR")
	c.setWget(bundle)
	c.set("", "QUOTACTL_METER_CA", "QUOTACTL_METER_DIRECT", "QUOTACTL_METER_UID") // another meter's
	if !o.noHooks {
		c.setHooks(o)
	}
	if o.java {
		c.setJava(o.direct, trusted)
	}
	for name, value := range c.environment {
		c.env = append(c.env, name+"="+value)
	}
	return c.err
}

// write makes a file in the folder, and returns its path.
func (c *composer) write(name string, mode os.FileMode, data []byte) string {
	path := filepath.Join(c.folder, name)
	err := os.WriteFile(path, data, mode)
	if err == nil {
		err = os.Chmod(path, mode) // whatever the umask
	}
	c.err = cmp.Or(c.err, err)
	return path
}

func (c *composer) setProxy(o surroundOptions) {
	address := url.URL{Scheme: "http", User: url.UserPassword(proxyUser, o.token), Host: o.proxy}
	c.set(address.String(), "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy")
	kept, removed := exemptions(c.environment, o.hosts)
	c.set(strings.Join(kept, ","), "NO_PROXY", "no_proxy")
	if len(removed) > 0 {
		c.said = append(c.said, "NO_PROXY covers metered hosts: the command runs without its "+strings.Join(removed, ", "))
	}
	c.set("1", "NODE_USE_ENV_PROXY", "PERL_LWP_ENV_PROXY")
	c.set(o.proxy, "QUOTACTL_METER")
	c.set(strings.Join(o.hosts, ","), "QUOTACTL_METER_HOSTS")
}

// setWget adds to the user's settings. These may have passwords: nobody else may read the copy.
func (c *composer) setWget(bundle string) {
	path := cmp.Or(c.environment["WGETRC"], filepath.Join(c.environment["HOME"], ".wgetrc"))
	settings, mode := []byte("ca_certificate = "+bundle+"\n"), os.FileMode(0o644)
	if users, err := os.ReadFile(path); err == nil {
		settings, mode = append(append(users, '\n'), settings...), 0o600
	} else if !os.IsNotExist(err) {
		c.said = append(c.said, "wget runs without its settings: "+err.Error())
	}
	c.set(c.write("wgetrc", mode, settings), "WGETRC")
}

// setHooks makes Python and Node load the hooks, after what they load without them.
func (c *composer) setHooks(o surroundOptions) {
	c.write("sitecustomize.py", 0o644, []byte(pythonHook))
	c.set(strings.TrimSuffix(c.folder+":"+c.environment["PYTHONPATH"], ":"), "PYTHONPATH")
	c.add("NODE_OPTIONS", "--require "+c.write("hook.cjs", 0o644, []byte(nodeHook)))
	c.set(c.write("root.pem", 0o644, o.ca), "QUOTACTL_METER_CA")
	if o.direct != "" {
		c.set(o.direct, "QUOTACTL_METER_DIRECT")
		c.set(strconv.Itoa(os.Geteuid()), "QUOTACTL_METER_UID")
	}
}

// setJava names the listener that asks for no password, since Java sends a proxy none.
func (c *composer) setJava(direct string, trusted *trust) {
	host, port, _ := net.SplitHostPort(direct)
	store := c.write("roots.jks", 0o644, keystore(trusted.certs, time.Now()))
	if strings.Contains(c.environment["JAVA_TOOL_OPTIONS"], "javax.net.ssl.trustStore=") {
		c.said = append(c.said, "JAVA_TOOL_OPTIONS names a trustStore: Java does not use it, but the system's roots")
	}
	for _, scheme := range []string{"http", "https"} {
		c.add("JAVA_TOOL_OPTIONS", "-D"+scheme+".proxyHost="+host+" -D"+scheme+".proxyPort="+port)
	}
	c.add("JAVA_TOOL_OPTIONS", "-Djavax.net.ssl.trustStoreType=JKS -Djavax.net.ssl.trustStorePassword="+storePassword+" -Djavax.net.ssl.trustStore="+store)
}

// add appends to a variable that has options: the later of two that contradict counts.
func (c *composer) add(variable, options string) {
	c.set(strings.TrimSpace(c.environment[variable]+" "+options), variable)
}

// neverProxied are this machine, and where clouds give a machine its credentials.
var neverProxied = []string{"localhost", "127.0.0.1", "::1", "169.254.169.254", "169.254.170.2", "fd00:ec2::254", "metadata.google.internal"}

// exemptions divides the entries of NO_PROXY, in both cases since programs differ in which they
// read, into those that the command keeps, with neverProxied, and those that cover a metered host.
func exemptions(env environment, hosts []string) (kept, removed []string) {
	isSeparator := func(r rune) bool { return strings.ContainsRune(", \t", r) }
	entries := strings.FieldsFunc(env["NO_PROXY"]+","+env["no_proxy"], isSeparator)
	for i, entry := range slices.Concat(entries, neverProxied) {
		covers := slices.ContainsFunc(hosts, func(host string) bool { return exempts(entry, host) })
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
