package gateway

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/driver"
)

// credentials find the credential of a request.
type credentials struct {
	key     []byte              // of the digests, of this run alone
	secrets map[string][]string // the budgets, by the digest of a secret
	lengths map[int]bool        // of the secrets: other values need no digest
	known   map[string]bool     // the budgets whose secret could be read
	lacking map[string][]string // by upstream: which secrets could not be read, in words
	named   []string            // the budgets of --budget or of the job
	say     func(text string)   // takes a sentence for the user; the same one again is nothing new
}

// newCredentials reads the secrets that can be read now. secret returns that of a credential;
// empty if it cannot be read.
func newCredentials(
	upstreams []config.Upstream, named []string, secret func(config.Credential) string, say func(string),
) *credentials {
	c := &credentials{
		key: []byte(rand.Text()), secrets: map[string][]string{}, lengths: map[int]bool{}, known: map[string]bool{},
		lacking: map[string][]string{}, named: named, say: say,
	}
	for _, u := range upstreams {
		for _, credential := range u.Credentials {
			name, at := u.Name+"/"+credential.Label, cmp.Or(credential.SecretEnv, credential.SecretFile)
			if value := strings.TrimSpace(secret(credential)); value != "" {
				c.know(name, value)
			} else if at != "" {
				c.lacking[u.Name] = append(c.lacking[u.Name], fmt.Sprintf("the secret of %s, in %s, cannot be read where meter runs", name, at))
			}
		}
	}
	return c
}

// know notes what a request of a budget's credential carries.
func (c *credentials) know(name, value string) {
	d := c.digest(value)
	c.secrets[d], c.lengths[len(value)], c.known[name] = append(c.secrets[d], name), true, true
}

// digest stands for a value that may be a secret.
func (c *credentials) digest(value string) string {
	mac := hmac.New(sha256.New, c.key)
	_, _ = mac.Write([]byte(value)) // it never fails
	return string(mac.Sum(nil))
}

// of returns the budget of a request, and whether the request carries none of its known
// secrets. The error says why the budget is unknown.
func (c *credentials) of(w owned, req *http.Request) (name string, foreign bool, err error) {
	carried := carriedBy(req)
	open := c.carrying(w, carried)
	if len(open) == 0 {
		open = identified(w, carried)
	}
	if chosen := keep(c.named, w.has); len(chosen) > 0 {
		fits := keep(chosen, func(name string) bool { return len(open) == 0 || slices.Contains(open, name) })
		if len(fits) == 0 {
			return "", false, fmt.Errorf(
				"the request carries what belongs to %s, but is to be charged to %s: run it with that credential's secret, or with --budget %s",
				strings.Join(open, " and "), strings.Join(chosen, " or "), strings.Join(open, " or "))
		}
		open = fits
	}
	if all := w.upstream.Credentials; len(open) == 0 && len(all) == 1 && all[0].Label != config.AnyCredential {
		name = w.upstream.Name + "/" + all[0].Label
		if foreign = c.known[name]; foreign {
			c.say(fmt.Sprintf("calls to %s carry another key than %s, or none: they are charged to it, and what their answers say of quotas is not believed", w.upstream.Name, name))
		}
		return name, foreign, nil
	}
	switch len(open) {
	case 1:
		return open[0], false, nil
	case 0:
		if slices.ContainsFunc(w.upstream.Credentials, func(c config.Credential) bool { return c.Label == config.AnyCredential }) {
			return "", false, fmt.Errorf("each label of credential \"*\" of %s has a budget of its own, and nothing in the request names a label: add --budget %s/NAME, with a name of your own for whose key it is", w.upstream.Name, w.upstream.Name)
		}
		why := fmt.Sprintf("nothing in the request says which credential of %s it uses: add --budget %s/LABEL, or write id = \"…\" in its table", w.upstream.Name, w.upstream.Name)
		return "", false, errors.New(strings.Join(append([]string{why}, c.lacking[w.upstream.Name]...), "; "))
	}
	return "", false, fmt.Errorf("the request fits %s: add --budget %s", strings.Join(open, " and "), strings.Join(open, " or --budget "))
}

// keep are those of a list for which something holds.
func keep(list []string, holds func(string) bool) []string {
	return slices.DeleteFunc(slices.Clone(list), func(one string) bool { return !holds(one) })
}

// carrying are the budgets of an upstream whose secret is carried.
func (c *credentials) carrying(w owned, carried carried) (list []string) {
	fits := func(value string) bool { return c.lengths[len(value)] }
	for _, value := range keep(carried.values, fits) {
		for _, name := range c.secrets[c.digest(value)] {
			if w.has(name) && !slices.Contains(list, name) {
				list = append(list, name)
			}
		}
	}
	return list
}

// identified are the budgets of an upstream whose id, which is not secret, is carried; without
// one, the budget of the label in the host.
func identified(w owned, carried carried) (list []string) {
	anyLabel := false
	for _, credential := range w.upstream.Credentials {
		anyLabel = anyLabel || credential.Label == config.AnyCredential
		if slices.ContainsFunc(credential.IDs, func(id string) bool {
			return slices.Contains(carried.ids, id) || id == w.label
		}) {
			list = append(list, w.upstream.Name+"/"+credential.Label)
		}
	}
	if len(list) == 0 && anyLabel && driver.ValidName(w.label) {
		list = []string{w.upstream.Name + "/" + w.label}
	}
	return list
}

// carried is what a request carries that may say whose it is.
type carried struct {
	values []string // possible secrets
	ids    []string // what identifies, and is not secret
}

// carriedBy reads query values, header values, Authorization after any scheme, and both halves
// of Basic.
func carriedBy(req *http.Request) (c carried) {
	for name, values := range req.URL.Query() {
		c.values = append(c.values, values...)
		if name == "X-Amz-Credential" {
			c.addAccessKey(values[0])
		}
	}
	for _, values := range req.Header {
		c.values, c.ids = append(c.values, values...), append(c.ids, values...)
	}
	for _, value := range req.Header.Values("Authorization") {
		c.addAuthorization(value)
	}
	return c
}

func (c *carried) addAuthorization(value string) {
	scheme, rest, ok := strings.Cut(value, " ")
	rest = strings.TrimSpace(rest)
	c.values = append(c.values, rest)
	switch {
	case !ok:
	case strings.EqualFold(scheme, "Basic"):
		if text, err := base64.StdEncoding.DecodeString(rest); err == nil {
			user, password, _ := strings.Cut(string(text), ":")
			c.values, c.ids = append(c.values, user, password), append(c.ids, user)
		}
	case strings.HasPrefix(scheme, "AWS4-"):
		if _, credential, found := strings.Cut(rest, "Credential="); found {
			c.addAccessKey(credential)
		}
	default:
		c.addClient(rest)
	}
}

// addAccessKey adds the key of "AKIA…/20260101/…", which is not secret.
func (c *carried) addAccessKey(scope string) {
	id, _, _ := strings.Cut(scope, "/")
	c.ids = append(c.ids, id)
}

// addClient adds who a JWT was issued to. Nobody has verified it: it chooses between
// credentials, and lets nobody in.
func (c *carried) addClient(token string) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return
	}
	text, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	var claims struct {
		Client string `json:"client_id"`
		Party  string `json:"azp"`
	}
	if err == nil && json.Unmarshal(text, &claims) == nil {
		c.ids = append(c.ids, claims.Client, claims.Party)
	}
}
