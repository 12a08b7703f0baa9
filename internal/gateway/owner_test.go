package gateway

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

const ownersConfig = `
[upstream.youtube]
base_url = "https://www.googleapis.com/youtube/v3"
method_override = true
[upstream.youtube.costs]
search = { units = 100, match = "GET www.googleapis.com/youtube/v3/search" }
insert = { units = 1600, match = "POST www.googleapis.com/youtube/v3/videos" }
list   = { units = 1, match = "GET www.googleapis.com/youtube/v3/videos" }
[upstream.youtube.limit.day]
quota = 10_000
window = "24h"
[upstream.youtube.credential.key1]
secret_env = "KEY1"
[upstream.youtube.credential.key2]
secret_env = "KEY2"
id = "project-2"

[upstream.sheets]
base_url = ["https://www.googleapis.com/sheets", "http://sheets.example.com:8080/v4"]
unknown_operation = 3
[upstream.sheets.costs]
dear = { units = 50, match = "sheets.example.com/v4/dear/{id}" }
[upstream.sheets.limit.day]
quota = 100
window = "24h"
[upstream.sheets.credential.main]
secret_env = "KEY3"
id = ["AKIAEXAMPLE", "client-9"]

[upstream.shops]
hosts = ["*.myshopify.com", "special.myshopify.com:8443"]
unknown_operation = 1
[upstream.shops.costs]
cheap = { units = 2, match = "*.myshopify.com/admin/" }
[upstream.shops.limit.day]
quota = 100
window = "24h"
[upstream.shops.credential."*"]

[upstream.chat]
hosts = ["chat.example.com"]
unknown_operation = 1
[upstream.chat.limit.day]
quota = 100
window = "24h"
[upstream.chat.credential."*"]

[upstream.special]
hosts = ["special.myshopify.com"]
unknown_operation = 7
[upstream.special.limit.day]
quota = 100
window = "24h"
[upstream.special.credential.a]
[upstream.special.credential.b]
`

func ownersOf(t *testing.T) (*owners, *config.Config) {
	file := filepath.Join(t.TempDir(), "costs.toml")
	must.Do(t, os.WriteFile(file, []byte(ownersConfig), 0o600))
	cfg := must.Get(config.Load(file))(t)
	return must.Get(newOwners(cfg.Upstreams, []string{"cut.myshopify.com", "*.cut.myshopify.com"}))(t), cfg
}

// The most specific claim decides; what nobody owns is nobody's; the dearer reading counts.
func TestOwners(t *testing.T) {
	o, _ := ownersOf(t)
	for _, c := range []struct {
		method, host string
		port         int
		target, want string
	}{
		{"GET", "www.googleapis.com", 443, "/youtube/v3/search", "youtube search"},
		{"GET", "www.googleapis.com", 443, "/youtube/v3/other", "youtube unmatched"},
		{"GET", "www.googleapis.com", 443, "/youtube/v3", "youtube unmatched"},
		{"GET", "www.googleapis.com", 443, "/youtube/v33", ""},
		{"GET", "www.googleapis.com", 443, "/drive/v3/files", ""},
		{"GET", "www.googleapis.com", 443, "/sheets/1", "sheets unmatched"},
		{"GET", "www.googleapis.com", 443, "/sheets/../youtube/v3/search", "youtube search"},
		{"GET", "www.googleapis.com", 443, "/drive/%2e%2e/youtube/v3/search", "youtube search"},
		{"GET", "www.googleapis.com", 443, "/youtube/v3/%73earch", "youtube search"},
		{"GET", "www.googleapis.com", 443, "//youtube//v3/search", "youtube search"},
		{"GET", "www.googleapis.com", 443, "/youtube/v3/search/../videos", "youtube list"},
		{"GET", "www.googleapis.com", 443, `/youtube/v3/x\..\search`, "youtube unmatched"},
		{"GET", "www.googleapis.com", 443, "/youtube%2Fv3%2Fsearch", "youtube search"},
		{"GET", "www.googleapis.com", 443, "/youtube/v3/search#f", "youtube unmatched"},
		{"GET", "sheets.example.com", 8080, "/v4/dear/7/", "sheets dear"},
		{"GET", "sheets.example.com", 8080, "/v4/x/..;/dear/7", "sheets dear"},
		{"GET", "sheets.example.com", 8080, "/v4/dear;x=1/7", "sheets dear"},
		{"GET", "sheets.example.com", 8080, "/v4/dear/7%2F", "sheets dear"},
		{"HEAD", "www.googleapis.com", 443, "/youtube/v3/search", "youtube search"},
		{"POST", "www.googleapis.com", 443, "/youtube/v3/videos", "youtube insert"},
		{"POST GET", "www.googleapis.com", 443, "/youtube/v3/videos", "youtube list"},
		{"GET POST", "www.googleapis.com", 443, "/youtube/v3/videos", "youtube insert"},
		{"GET", "sheets.example.com", 8080, "/v4/dear/7", "sheets dear"},
		{"GET", "sheets.example.com", 8080, "/v5/x", ""},
		{"GET", "sheets.example.com", 8080, "/v5/../v4/x", "sheets unmatched"},
		{"GET", "sheets.example.com", 9090, "/v4/dear/7", ""},
		{"GET", "a.myshopify.com", 443, "/admin/x", "shops cheap a"},
		{"GET", "a.b.myshopify.com", 443, "/other", "shops unmatched a.b"},
		{"POST", "a.myshopify.com", 443, "/x/oauth/access_token", ""},
		{"GET", "a.myshopify.com", 443, "/x/oauth/access_token", "shops unmatched a"},
		{"GET", "myshopify.com", 443, "/other", ""},
		{"GET", "xmyshopify.com", 443, "/other", ""},
		{"GET", "special.myshopify.com", 443, "/other", "special unmatched"},
		{"GET", "special.myshopify.com", 8443, "/other", "shops unmatched special"},
		{"GET", "special.myshopify.com", 443, "/admin/x", "shops cheap special"},
	} {
		req := &http.Request{Method: c.method, Host: c.host, Header: http.Header{}}
		if method, override, ok := strings.Cut(c.method, " "); ok {
			req.Method = method
			req.Header.Set("X-HTTP-Method-Override", override)
		}
		req.URL = &url.URL{}
		path, _, _ := strings.Cut(c.target, "?")
		req.URL.RawPath, req.URL.Path = path, must.Get(url.PathUnescape(path))(t)
		got := o.of(req, c.host, c.port)
		text := ""
		if got.upstream != nil {
			text = strings.TrimSpace(got.upstream.Name + " " + got.operation + " " + got.label)
		}
		check.Equal(t, text, c.want, c.method+" "+c.host+" "+c.target)
	}
	check.EqualSlices(t, o.names(), []string{"*.myshopify.com", "chat.example.com", "sheets.example.com", "special.myshopify.com", "www.googleapis.com"}, "hosts")
	check.Equal(t, o.opens("cut.myshopify.com", 443), false, "--tunnel")
	check.Equal(t, o.opens("below.cut.myshopify.com", 443), false, "--tunnel of a pattern")
	check.Equal(t, o.opens("whole.myshopify.com", 443), true, "beside it")
}

// Whose a request is: by its secret, by an id, by what the user says, or since there is one.
func TestCredentials(t *testing.T) {
	o, cfg := ownersOf(t)
	basic := func(user, password string) string {
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
	}
	jwt := "e30." + base64.RawURLEncoding.EncodeToString([]byte(`{"azp":"client-9","exp":1}`)) + ".c2ln"
	const search, sheets = "https://www.googleapis.com/youtube/v3/search", "https://www.googleapis.com/sheets/1"
	for name, c := range map[string]struct {
		address, header, value string
		budgets                []string
		want                   string // a budget, or a part of why there is none
		said                   string
	}{
		"query":            {search + "?key=secret1", "", "", nil, "youtube/key1", ""},
		"escaped query":    {search + "?key=%73ecret1", "", "", nil, "youtube/key1", ""},
		"query of the id":  {search, "X-Goog-Api-Key", "secret2", nil, "youtube/key2", ""},
		"bearer":           {search, "Authorization", "Bearer secret2", nil, "youtube/key2", ""},
		"own scheme":       {search, "Authorization", "ApiKey secret2", nil, "youtube/key2", ""},
		"without a scheme": {search, "Authorization", "secret2", nil, "youtube/key2", ""},
		"basic user":       {search, "Authorization", basic("secret1", ""), nil, "youtube/key1", ""},
		"basic password":   {search, "Authorization", basic("x", "secret1"), nil, "youtube/key1", ""},
		"id":               {search, "X-Goog-User-Project", "project-2", nil, "youtube/key2", ""},
		"secret before id": {search + "?key=secret1", "X-Goog-User-Project", "project-2", nil, "youtube/key1", ""},
		"named":            {search, "", "", []string{"sheets/main", "youtube/key2"}, "youtube/key2", ""},
		"named as carried": {search + "?key=secret1", "", "", []string{"youtube/key1"}, "youtube/key1", ""},
		"contradiction":    {search + "?key=secret1", "", "", []string{"youtube/key2"}, "carries what belongs to youtube/key1", ""},
		"nothing":          {search, "Authorization", "Bearer ya29.short", nil, "--budget youtube/LABEL", ""},
		"the only one":     {sheets, "", "", nil, "sheets/main", "calls to sheets carry another key than sheets/main, or none: they are charged to it, and what their answers say of quotas is not believed"},
		"by access key":    {sheets, "Authorization", "AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/20260101/x/y/aws4_request, SignedHeaders=host", nil, "sheets/main", ""},
		"by JWT":           {sheets, "Authorization", "Bearer " + jwt, nil, "sheets/main", ""},
		"by presigned":     {sheets + "?X-Amz-Credential=AKIAEXAMPLE%2F2026", "", "", nil, "sheets/main", ""},
		"another's key":    {sheets, "Authorization", "Bearer other", nil, "sheets/main", "calls to sheets carry another key than sheets/main, or none: they are charged to it, and what their answers say of quotas is not believed"},
		"its own":          {sheets, "Authorization", "Bearer secret3", nil, "sheets/main", ""},
		"a shop":           {"https://a.myshopify.com/", "", "", nil, "shops/a", ""},
		"a shop below":     {"https://a.b.myshopify.com/", "", "", nil, "shops/a.b", ""},
		"a shop, named":    {"https://a.myshopify.com/", "", "", []string{"shops/b"}, "carries what belongs to shops/a", ""},
		"no label":         {"https://chat.example.com/", "Authorization", "Bearer xoxb", nil, "add --budget chat/NAME, with a name of your own", ""},
		"a label, named":   {"https://chat.example.com/", "Authorization", "Bearer xoxb", []string{"chat/team"}, "chat/team", ""},
		"two":              {"https://special.myshopify.com/", "", "", nil, "--budget special/LABEL", ""},
		"two named":        {"https://special.myshopify.com/", "", "", []string{"special/a", "special/b"}, "fits special/a and special/b", ""},
	} {
		t.Run(name, func(t *testing.T) {
			said := ""
			list := newCredentials(cfg.Upstreams, c.budgets, func(one config.Credential) string {
				return map[string]string{"KEY1": " secret1\n", "KEY2": "secret2", "KEY3": "secret3"}[one.SecretEnv]
			}, func(text string) { said = text })
			req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, c.address, nil))(t)
			if c.header != "" {
				req.Header.Set(c.header, c.value)
			}
			got, _, err := list.of(o.of(req, req.URL.Hostname(), 443), req)
			if err != nil {
				got = err.Error()
			}
			if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			check.Equal(t, said, c.said, "said")
		})
	}
}

// A part of a path is shown if it is a plain word.
func TestWordsOfPaths(t *testing.T) {
	for part, want := range map[string]string{
		"drive": "drive", "v3": "v3", "data-2.5_x": "data-2.5_x", "": "", "bot123:SECRET": "…", "AIzaSy": "…", "12345": "…",
		"abcdefghijklmnopqrstuvwxyz": "…", "caf\u00e9": "…",
	} {
		check.Equal(t, wordOr(part), want, part)
	}
}
