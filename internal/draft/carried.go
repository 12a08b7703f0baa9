package draft

import (
	"net/http"
	"strings"
)

var (
	hostForm   = lazily(`^[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?(:\d+)?$`) // as costs.toml has it
	methodForm = lazily(`^[A-Za-z]{3,16}$`)
	nameForm   = lazily(`^[A-Za-z_.-]{1,32}$`) // of a query value: others are not shown
	secretName = lazily(`(?i)key|token|secret|pass|credential|auth|webhook`)
	botToken   = lazily(`\d{5,}:[\w-]{20,}`) // Telegram's
	ofHeader   = lazily(`(?i)^(?:cookie|x-.*(?:key|token|secret|auth|password)|.*(?:auth|access|private|api|subscription)[-_]?(?:key|token|secret))$`)
	ofQuery    = lazily(`(?i)^(?:key|auth|appid|sig|pass(?:word)?|(?:.*[-_])?token|.*(?:api|access|auth|subscription)[-_]?(?:key|token)|.*(?:secret|signature))$`)
	notSecret  = lazily(`(?i)page|next|sync|continu|cursor|csrf|idempot`) // tokens and keys of another kind
	schemes    = lazily(`(?i)^(?:basic|bearer|token|oauth|digest|negotiate|apikey|api-key|key|bot|ssws|geniekey|klaviyo-api-key|deepl-auth-key|zoho-oauthtoken)$`)
)

// carried are the credentials in a request, by where they are.
func (l *Log) carried(req *http.Request) map[Place]string {
	found := map[Place]string{}
	add := func(p Place, value string, is bool) {
		if value = strings.TrimSpace(value); value != "" && (is || l.variables[value] != "") {
			found[p] = value
		}
	}
	for name, values := range req.Header {
		if name == "Authorization" {
			p, value := authorization(values[0])
			add(p, value, true)
		} else {
			add(Place{Header: name}, values[0], ofHeader().MatchString(name) && !notSecret().MatchString(name))
		}
	}
	for name, values := range req.URL.Query() {
		if nameForm().MatchString(name) {
			add(Place{Query: name}, values[0], ofQuery().MatchString(name) && !notSecret().MatchString(name))
		}
	}
	for value := range l.variables {
		if strings.Contains(req.URL.Path, value) {
			add(Place{Text: "path"}, value, true)
		}
	}
	add(Place{Text: "path"}, botToken().FindString(req.URL.Path), true)
	return found
}

// authorization is the place of a credential in Authorization. A scheme that is not well known may
// be the credential itself.
func authorization(value string) (Place, string) {
	scheme, rest, _ := strings.Cut(value, " ")
	switch {
	case strings.HasPrefix(scheme, "AWS4-"):
		return Place{Text: "signature in Authorization"}, rest
	case rest != "" && schemes().MatchString(scheme):
		return Place{Header: "Authorization", Prefix: scheme + " "}, rest
	}
	return Place{Header: "Authorization"}, value
}

var (
	rateHeader = lazily(`^(?i:(?:x-)?(?:[a-z]{2,12}-)?ratelimit(?:-[a-z-]{1,32})?|x-rate-limit-[a-z-]{1,32}|retry-after(?:-ms)?)$`)
	number     = lazily(`^\d{1,15}(?:\.\d{1,6})?$`)
	parameter  = lazily(`;\s*([a-z])=(\d{1,15})\b`)
)

// hear notes what an answer says of a quota: numbers alone.
func (h *Host) hear(header http.Header) {
	for name, values := range header {
		if !rateHeader().MatchString(name) || len(h.Limits) > 20 {
			continue
		}
		first, _, _ := strings.Cut(values[0], ",")
		if number().MatchString(values[0]) {
			h.Limits[name] = values[0]
		}
		for _, m := range parameter().FindAllStringSubmatch(first, -1) { // "default";q=100;w=60
			h.Limits[name+" "+m[1]] = m[2]
		}
	}
}
