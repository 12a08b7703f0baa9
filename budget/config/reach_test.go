package config

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// shop is an upstream with some lines, which begin in line 2.
func shop(name, lines, costs string) string {
	return fmt.Sprintf("[upstream.%s]\n%s\n[upstream.%s.costs]\n%s\n[upstream.%s.limit.l]\nlimit = 100\nwindow = \"1h\"\n[upstream.%s.credential.key1]\n",
		name, lines, name, costs, name, name)
}

func TestReachIsRead(t *testing.T) {
	c := parse(t, shop("shop", `hosts = ["api.example.com", "*.shops.example.com", "api.example.com:8443", "single:80"]
base_url = ["https://www.example.com/api/v3/", "http://www.example.com:8080", "https://www.example.com:443"]
secret = { header = "Authorization", prefix = "Bearer " }
method_override = true
tunnel = true
final = { status = 200, body = '{"ok":false,"error":"{message}"}' }`, "get = 1")+"id = [\"AKIA1\", \"me@example.com\"]\n[upstream.shop.credential.key2]\nid = \"AKIA2\"\n")
	must.Do(t, c.Err())
	u := c.Upstreams[0]
	if want := []Host{{"api.example.com", 0}, {"*.shops.example.com", 0}, {"api.example.com", 8443}, {"single", 80}}; !reflect.DeepEqual(u.Hosts, want) {
		t.Errorf("hosts %+v, want %+v", u.Hosts, want)
	}
	check.Equal(t, fmt.Sprint(u.BaseURLs), "[https://www.example.com/api/v3 http://www.example.com:8080 https://www.example.com]", "base_url")
	check.Equal(t, u.Secret, Secret{Header: "Authorization", Prefix: "Bearer "}, "secret")
	check.Equal(t, u.MethodOverride && u.Tunnel, true, "method_override and tunnel")
	check.Equal(t, u.Final, Final{200, `{"ok":false,"error":"{message}"}`}, "final")
	check.Equal(t, fmt.Sprint(u.Credentials[0].IDs, u.Credentials[1].IDs), "[AKIA1 me@example.com] [AKIA2]", "ids")
	_, _, err := c.Find("shop/key2")
	must.Do(t, err)
}

func TestReachDefaults(t *testing.T) {
	c := parse(t, shop("shop", "", "get = 1"))
	must.Do(t, c.Err())
	u := c.Upstreams[0]
	if u.Hosts != nil || u.BaseURLs != nil || u.Secret != (Secret{}) || u.MethodOverride || u.Tunnel || u.Final != (Final{}) || u.Credentials[0].IDs != nil {
		t.Errorf("an upstream that says nothing has %+v", u)
	}
	half := parse(t, shop("shop", `final = { body = '["{message}"]' }`, "get = 1"))
	must.Do(t, half.Err())
	check.Equal(t, half.Upstreams[0].Final, Final{403, `["{message}"]`}, "final without a status")
}

// one reads a configuration with one error, in the line given, that says want, and hides
// secrets.
func one(t *testing.T, text string, line int, want string) {
	t.Helper()
	err := parse(t, text).Err()
	if err == nil || strings.Count(err.Error(), "\n") > 0 || !strings.Contains(err.Error(), fmt.Sprintf("costs.toml:%d: ", line)) || !strings.Contains(err.Error(), want) {
		t.Errorf("%s\nerror %v, want one of line %d with %q", text, err, line, want)
	}
	if err != nil && strings.Contains(err.Error(), "hunter2") {
		t.Errorf("error shows a secret: %v", err)
	}
}

func TestReachFaults(t *testing.T) {
	const noHost, noBase = "it is not a host", "base_url cannot be read"
	long := strings.Repeat("a.", 127)
	for _, test := range []struct{ line, want string }{
		{`hosts = 1`, "write a string in quotes"},
		{`hosts = []`, "hosts is empty"},
		{`hosts = ["a.example.com", ""]`, "empty string"},
		{`hosts = "API.example.com"`, noHost},
		{`hosts = "https://me:hunter2@example.com"`, noHost},
		{`hosts = "example.com/v1"`, noHost},
		{`hosts = "example.com."`, noHost},
		{`hosts = "exa mple.com"`, noHost},
		{`hosts = "example.com\n"`, noHost},
		{`hosts = "*"`, noHost},
		{`hosts = "*.*.example.com"`, noHost},
		{`hosts = "a.*.example.com"`, noHost},
		{`hosts = "bücher.example"`, noHost},
		{`hosts = "[::1]:80"`, noHost},
		{`hosts = "example.com:"`, noHost},
		{`hosts = "example.com:0"`, noHost},
		{`hosts = "example.com:65536"`, noHost},
		{`hosts = "example.com:+80"`, noHost},
		{`hosts = "` + long + `a"`, noHost},
		{`hosts = "*.example.com:8443"`, "has no port"},
		{`hosts = ["example.com", "example.com:443"]`, "upstream shop has it already"},
		{`base_url = true`, "write a string in quotes"},
		{`base_url = "api.example.com/v1"`, noBase},
		{`base_url = "ftp://api.example.com"`, noBase},
		{`base_url = "https://api.example.com:hunter2"`, noBase},
		{`base_url = "https:api.example.com"`, "names no host"},
		{`base_url = "https:///v1"`, "names no host"},
		{`base_url = "https://api.Example.com"`, "names no host"},
		{`base_url = "https://*.example.com"`, "names no host"},
		{`base_url = "https://api.example.com:0"`, "names no host"},
		{`base_url = "https://me:hunter2@api.example.com"`, "contains a user, a query"},
		{`base_url = "https://api.example.com?key=hunter2"`, "contains a user, a query"},
		{`base_url = "https://api.example.com/#"`, "contains a user, a query"},
		{`base_url = "https://api.example.com/a/../b"`, "path with"},
		{`base_url = "https://api.example.com//v1"`, "path with"},
		{`base_url = "https://api.example.com/%2e%2e/v1"`, "path with"},
		{`base_url = "https://api.example.com/a b"`, "path with"},
		{`base_url = 'https://api.example.com/a\b'`, "path with"},
		{`base_url = ["https://api.example.com", "https://api.example.com:443/"]`, "upstream shop has it already"},
		{`secret = "hunter2"`, "it is not the secret"},
		{`secret = { query = "key", header = "X-Key" }`, "keep one"},
		{`secret = { header = "X Key" }`, "not a valid header name"},
		{`secret = { header = "X-Key", prefix = "a\nb" }`, "no header can carry"},
		{`secret = { query = "key", querry = "key" }`, `did you mean "query"`},
		{`method_override = "yes"`, "write true or false"},
		{`tunnel = 1`, "write true or false"},
		{`final = 403`, "write a table"},
		{`final = { status = 199 }`, "use 200 to 599"},
		{`final = { status = 204 }`, "has no body"},
		{`final = { body = "" }`, "body is empty"},
		{`final = { body = '{"error":{message}}' }`, "body is not JSON"},
		{`final = { body = 'spent' }`, "body is not JSON"},
		{`final = { body = '{} {}' }`, "body is not JSON"},
		{`final = { bod = '{}' }`, `did you mean "body"`},
	} {
		one(t, shop("shop", test.line, "get = 1"), 2, test.want)
	}
}

// What one upstream has no other has, and no two credentials have one id.
func TestReachBelongsToOne(t *testing.T) {
	const first, price = "hosts = [\"api.example.com\", \"api.example.com:81\"]\nbase_url = \"http://www.example.com/v1\"", "get = 1"
	for line, want := range map[string]string{
		`hosts = "api.example.com"`:                                        "upstream first has it already",
		`hosts = "api.example.com:80"`:                                     "upstream first has it already",
		`hosts = "api.example.com:443"`:                                    "upstream first has it already",
		`hosts = "api.example.com:81"`:                                     "upstream first has it already",
		`base_url = "http://www.example.com:80/v1/"`:                       "upstream first has it already",
		`hosts = ["*.example.com", "www.example.com"]`:                     "",
		`hosts = "api.example.com:82"`:                                     "",
		`base_url = ["http://www.example.com/v1/a", "http://example.com"]`: "",
	} {
		text := shop("first", first, price) + shop("second", line, price)
		if want != "" {
			one(t, text, 11, want)
			continue
		}
		must.Do(t, parse(t, text).Err())
	}
	text := shop("first", "", price)
	one(t, text+"id = \"a\"\n[upstream.first.credential.key2]\nid = [\"b\", \"a\"]\n", 11, "id = \"a\": credential key1 has it already")
	one(t, text+"id = [\"a\", \"a\"]\n", 9, "credential key1 has it already")
	one(t, text+"id = \"\"\n", 9, "id is empty")
	one(t, text+"[upstream.first.credential.\"*\"]\nid = \"a\"\n", 10, "would not say which label")
	must.Do(t, parse(t, text+"id = \"a\"\n"+shop("second", "", price)+"id = \"a\"\n").Err())
}

// A request belongs to one operation of one upstream.
func TestPatternsOfTwoUpstreams(t *testing.T) {
	first := shop("first", "", `"a" = { units = 1, match = "GET www.example.com/v1/{x}/b" }`)
	for pattern, want := range map[string]string{
		"GET www.example.com/v1/{x}/b": `operation "a" of upstream first has it already; keep one`,
		"GET www.example.com/v1/c/{y}": `also match "GET www.example.com/v1/{x}/b" of operation "a" of upstream first, and neither pattern is more specific`,
		"GET www.example.com/v1/c/b":   "",
		"www.example.com/":             "",
		"GET example.com/v1/{x}/b":     "",
	} {
		text := first + shop("second", "", fmt.Sprintf(`"a" = { units = 1, match = %q }`, pattern))
		if want != "" {
			one(t, text, 12, want)
			continue
		}
		must.Do(t, parse(t, text).Err())
	}
}
