package gateway

import (
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
)

func TestExemptions(t *testing.T) {
	hosts := []string{"www.googleapis.com", "*.myshopify.com"}
	for _, c := range []struct{ set, kept, removed string }{
		{"NO_PROXY=", "", ""},
		{"NO_PROXY=*", "", "*"},
		{"no_proxy=*", "", "*"},
		{"NO_PROXY=inside.corp,.googleapis.com,10.0.0.0/8", "inside.corp 10.0.0.0/8", ".googleapis.com"},
		{"NO_PROXY=googleapis.com", "", "googleapis.com"},
		{"NO_PROXY=*.googleapis.com", "", "*.googleapis.com"},
		{"NO_PROXY=WWW.GoogleAPIs.com", "", "WWW.GoogleAPIs.com"},
		{"NO_PROXY=www.googleapis.com:443", "", "www.googleapis.com:443"},
		{"NO_PROXY=www.googleapis.com.", "", "www.googleapis.com."},
		{"NO_PROXY=apis.com", "", "apis.com"}, // requests compares the ends
		{"NO_PROXY=com", "", "com"},
		{"NO_PROXY=drive.googleapis.com", "drive.googleapis.com", ""},
		{"NO_PROXY=googleapis.com.evil.org", "googleapis.com.evil.org", ""},
		{"NO_PROXY=myshopify.com", "", "myshopify.com"},
		{"NO_PROXY=.myshopify.com", "", ".myshopify.com"},
		{"NO_PROXY=one.myshopify.com", "", "one.myshopify.com"},
		{"NO_PROXY=.eu.myshopify.com:443", "", ".eu.myshopify.com:443"},
		{"NO_PROXY=0.0.0.0/0,::/0", "0.0.0.0/0 ::/0", ""},
		{"NO_PROXY=10.1.2.3:80 fd00::1,[fd00::2]:443", "10.1.2.3:80 fd00::1 [fd00::2]:443", ""},
		{"NO_PROXY= a.corp , b.corp\tc.corp,,a.corp", "a.corp b.corp c.corp", ""},
		{"NO_PROXY=a.corp,*\nno_proxy=b.corp,*", "a.corp b.corp", "*"},
		{"NO_PROXY=localhost", "localhost", ""},
	} {
		kept, removed := exemptions(newEnvironment(strings.Split(c.set, "\n")), hosts)
		own := slices.DeleteFunc(slices.Clone(neverProxied), func(entry string) bool { return slices.Contains(strings.Fields(c.kept), entry) })
		check.EqualSlices(t, kept, append(strings.Fields(c.kept), own...), c.set)
		check.EqualSlices(t, removed, strings.Fields(c.removed), c.set)
	}
}

// TestMeteredLoopback: what is added for this machine does not exempt a metered host either.
func TestMeteredLoopback(t *testing.T) {
	kept, removed := exemptions(environment{}, []string{"127.0.0.1"})
	check.EqualSlices(t, kept, []string{"localhost", "::1", "169.254.169.254", "169.254.170.2", "fd00:ec2::254", "metadata.google.internal"})
	check.EqualSlices(t, removed, nil)
}

func TestExemptionsAreSaid(t *testing.T) {
	s, _ := surrounded(t, testOptions(t, "NO_PROXY=.example.com,x.corp,*"))
	check.EqualSlices(t, s.said, []string{"NO_PROXY covers metered hosts: the command runs without its .example.com, *"})
}

// bypasses are programs' rules for whether an entry keeps a host from the proxy.
var bypasses = map[string]func(entry, host, port string) bool{
	"net/http": func(entry, host, port string) bool {
		name, only, err := net.SplitHostPort(entry)
		if err != nil {
			name, only = entry, ""
		}
		name = strings.TrimPrefix(strings.ToLower(name), "*")
		return entry == "*" || name != "" && (only == "" || only == port) && (host == name || strings.HasSuffix(host, "."+strings.TrimPrefix(name, ".")))
	},
	"requests": func(entry, host, port string) bool {
		return strings.HasSuffix(host, entry) || strings.HasSuffix(host+":"+port, entry) || entry == "*"
	},
	"urllib": func(entry, host, port string) bool {
		entry = strings.ToLower(strings.TrimLeft(entry, "."))
		return entry == "*" || host == entry || strings.HasSuffix(host, "."+entry) || strings.HasSuffix("."+host+":"+port, "."+entry)
	},
	"curl": func(entry, host, _ string) bool {
		entry = strings.ToLower(strings.Trim(entry, "."))
		return entry == "*" || host == entry || strings.HasSuffix(host, "."+entry)
	},
	"proxy-from-env": func(entry, host, port string) bool {
		if at := strings.LastIndex(entry, ":"); at > 0 && entry[at+1:] != "" {
			if entry[at+1:] != port {
				return false
			}
			entry = entry[:at]
		}
		if rest, ok := strings.CutPrefix(entry, "*"); ok {
			return strings.HasSuffix(host, rest)
		}
		return host == entry || strings.HasPrefix(entry, ".") && strings.HasSuffix(host, entry)
	},
}

// TestNoProgramBypasses compares random entries with what programs make of them: none that the
// command keeps covers a metered host for any of them.
func TestNoProgramBypasses(t *testing.T) {
	random := rand.New(rand.NewPCG(effort.Seed(t), 0))
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	name := func() string {
		parts := make([]string, 1+random.IntN(3))
		for i := range parts {
			parts[i] = pick("a", "b", "ab", "shop", "com", "x-y")
		}
		return strings.Join(parts, ".")
	}
	for range effort.Of(20_000, 50_000, 1_000_000) {
		domain, pattern := name(), random.IntN(2) == 0
		entry := pick("", "", ".", "*.", "*") + name() + pick("", "", ":443", ":80")
		if random.IntN(20) == 0 {
			entry = pick("*", "*", "0.0.0.0/0", "10.0.0.1", "::1")
		}
		host, tried := domain, []string{domain}
		if pattern { // hosts below it, among them those that the entry may name
			plain, _, _ := strings.Cut(strings.TrimLeft(entry, "*."), ":")
			host, tried = "*."+domain, []string{"one." + domain, "a.b." + domain}
			if strings.HasSuffix(plain, "."+domain) {
				tried = append(tried, plain, "x."+plain)
			}
		}
		kept, _ := exemptions(environment{"NO_PROXY": entry}, []string{host})
		for _, one := range tried {
			for program, rule := range bypasses {
				if slices.Contains(kept, entry) && (rule(entry, one, "443") || rule(entry, one, "80")) {
					t.Fatalf("%s takes %q to cover %s", program, entry, one)
				}
			}
		}
	}
}
