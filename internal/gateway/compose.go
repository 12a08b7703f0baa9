package gateway

import (
	"cmp"
	"embed"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

//go:embed hooks
var hooks embed.FS

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
	c.write("quotactl.ini", 0o644, []byte("curl.cainfo="+bundle+"\nopenssl.cafile="+bundle+"\n"))
	c.set(c.environment["PHP_INI_SCAN_DIR"]+":"+c.folder, "PHP_INI_SCAN_DIR")
	c.setWget(bundle)
	c.set("", "QUOTACTL_METER_CA", "QUOTACTL_METER_HOSTS", "QUOTACTL_METER_DIRECT", "QUOTACTL_METER_UID") // another meter's
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
	python, _ := hooks.ReadFile("hooks/sitecustomize.py") // it is embedded
	node, _ := hooks.ReadFile("hooks/hook.cjs")
	c.write("sitecustomize.py", 0o644, python)
	c.set(strings.TrimSuffix(c.folder+":"+c.environment["PYTHONPATH"], ":"), "PYTHONPATH")
	c.add("NODE_OPTIONS", "--require "+c.write("hook.cjs", 0o644, node))
	c.set(c.write("root.pem", 0o644, o.ca), "QUOTACTL_METER_CA")
	c.set(strings.Join(o.hosts, ","), "QUOTACTL_METER_HOSTS")
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
