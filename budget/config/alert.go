package config

import (
	"net"
	"net/mail"
	"slices"
	"strconv"
	"strings"

	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/suggest"
)

// Alert is an [alert.NAME] table: whom to tell, how, and of what. It has the places of its
// secrets, never the secrets.
type Alert struct {
	Name string
	// URLEnv or URLFile has the address of a webhook; both empty: MailTo is given.
	URLEnv, URLFile string
	// As is the form of the webhook's body: "json", "slack", "discord", "ntfy" or "healthchecks"; "json" by default.
	As string
	// MailTo are the addresses that a mail goes to, by the server SMTP.
	MailTo []string
	SMTP   SMTP
	// On is what it tells of.
	On []AlertOn
	// Jobs and Budgets are names or "prefix.*"; empty: all.
	Jobs, Budgets []string
}

// AlertOn is a kind of news that an alert tells of.
type AlertOn struct {
	Kind string // "exhausted", "forecast", "starved", "failed", "locked", "drift", "outage", "lost", "missed" or "used"
	// Percent of a limit, 10 to 100; only for "used".
	Percent int64
}

// SMTP is an [alert.NAME.smtp] table: the server that mails are handed to.
type SMTP struct {
	Host string
	Port int
	// Security is "starttls" (default), "tls" from the first byte, or "none".
	Security string
	From     string
	// User logs in with the password of PasswordEnv or PasswordFile; empty: nobody logs in.
	User                      string
	PasswordEnv, PasswordFile string
}

// alertForms are the values of as, alertKinds those of on besides "used N%".
var (
	alertForms = []string{"json", "slack", "discord", "ntfy", "healthchecks"}
	alertKinds = []string{"exhausted", "forecast", "starved", "failed", "locked", "drift", "outage", "lost", "missed"}
)

// leastUsed and mostUsed bound the percentage of "used N%": it ends 5 below.
const (
	leastUsed = 10
	mostUsed  = 100
)

// Has reports whether the alert is for a job of a budget; job is empty for what concerns the
// budget alone. An alert for some jobs tells of all budgets that they spend: ofJobs has their
// names.
func (a *Alert) Has(budget, job string, ofJobs func() []string) bool {
	if len(a.Budgets) > 0 && !matchesName(a.Budgets, budget) {
		return false
	}
	if len(a.Jobs) == 0 {
		return true
	}
	if job != "" {
		return matchesName(a.Jobs, job)
	}
	return len(a.Budgets) > 0 || slices.ContainsFunc(ofJobs(), func(name string) bool { return matchesName(a.Jobs, name) })
}

func matchesName(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return limit.MatchOperation(pattern, name) })
}

// readAlert reads one [alert.NAME] table.
func (c *Config) readAlert(node Node) Alert {
	a := Alert{Name: node.Key(), As: "json"}
	checkName(node, "alert")
	t := node.Table("url_env", "url_file", "as", "mail_to", "smtp", "on", "jobs", "budgets")
	a.URLEnv, a.URLFile = c.readSecret("the address of alert "+a.Name, t["url_env"], t["url_file"])
	if as, ok := t["as"].OneOf(alertForms...); ok {
		a.As = as
	}
	byURL := t["url_env"].Exists() || t["url_file"].Exists()
	switch mails := t["mail_to"].Exists() || t["smtp"].Exists(); {
	case byURL && mails:
		node.Fail("alert %s has both an address and a mail: keep url_env or url_file, or mail_to with [alert.%s.smtp], or make two alerts", a.Name, a.Name)
	case mails && !t["smtp"].Exists():
		t["mail_to"].Fail("mail_to without a server: write [alert.%s.smtp] with server and from", a.Name)
	case mails && !t["mail_to"].Exists():
		t["smtp"].Fail("smtp without mail_to: write whom alert %s goes to, mail_to = [\"ops@example.org\"]", a.Name)
	case !byURL && !mails && node.IsTable():
		node.Fail("alert %s tells nobody: write url_env = \"VARIABLE\", the environment variable that has the webhook's address, or mail_to with [alert.%s.smtp]", a.Name, a.Name)
	}
	if t["as"].Exists() && !byURL && t["mail_to"].Exists() {
		t["as"].Fail("as is the form of a webhook's body: a mail has none; take it out")
	}
	a.MailTo = readAddresses(t["mail_to"])
	if t["smtp"].Exists() {
		a.SMTP = c.readSMTP(a.Name, t["smtp"])
	}
	a.On = readAlertOn(t["on"])
	a.Jobs = c.readAlertNames(t["jobs"], "job", c.jobNames())
	a.Budgets = c.readAlertNames(t["budgets"], "budget", c.Budgets())
	if t["on"].Exists() && slices.Contains(a.On, AlertOn{Kind: "starved"}) && !c.someJobHas("stale_after", &a) {
		t["on"].Warn("alert %s tells of starved jobs, and none of its jobs has a stale_after: write how long a job may be without a complete pass, such as stale_after = \"26h\", into its table", a.Name)
	}
	if t["on"].Exists() && slices.Contains(a.On, AlertOn{Kind: "missed"}) && !c.someJobHas("started_by", &a) {
		t["on"].Warn("alert %s tells of missed runs of jobs that cron starts, and none of its jobs has started_by = \"cron\"", a.Name)
	}
	return a
}

// someJobHas reports whether a job that an alert is for has a key.
func (c *Config) someJobHas(name string, a *Alert) bool {
	return slices.ContainsFunc(c.Jobs, func(job Node) bool {
		return (len(a.Jobs) == 0 || matchesName(a.Jobs, job.Key())) &&
			slices.ContainsFunc(job.children(), func(key Node) bool { return key.Key() == name })
	})
}

// readAlertOn reads what an alert tells of; by default all but use.
func readAlertOn(node Node) (list []AlertOn) {
	words, ok := node.SomeTexts()
	if !ok {
		for _, kind := range alertKinds {
			list = append(list, AlertOn{Kind: kind})
		}
		return list
	}
	for _, word := range words {
		on := AlertOn{Kind: word}
		if number, used := strings.CutPrefix(word, "used "); used {
			percent, err := strconv.ParseInt(strings.TrimSuffix(number, "%"), 10, 64)
			if err != nil || !strings.HasSuffix(number, "%") || percent < leastUsed || percent > mostUsed {
				node.Fail("on: %q: write a whole percentage of a limit from \"used %d%%\" to \"used %d%%\"", word, leastUsed, mostUsed)
				continue
			}
			on = AlertOn{"used", percent}
		} else if !slices.Contains(alertKinds, word) {
			node.Fail("on: %q: use %s%s", word, quoteList(append(slices.Clone(alertKinds), "used 80%")), suggest.DidYouMean(word, slices.Clone(alertKinds)))
			continue
		}
		if slices.Contains(list, on) {
			node.Fail("on names %q twice: take one out", word)
			continue
		}
		list = append(list, on)
	}
	return list
}

// readAlertNames reads names of jobs or budgets, or patterns that match some.
func (c *Config) readAlertNames(node Node, what string, known []string) []string {
	patterns, ok := node.SomeTexts()
	if !ok {
		return nil
	}
	for _, pattern := range patterns {
		if what == "budget" {
			if _, _, err := c.Find(pattern); err == nil { // a credential "*" may admit it
				continue
			}
		}
		if !slices.ContainsFunc(known, func(name string) bool { return limit.MatchOperation(pattern, name) }) {
			node.Fail("%s: there is no %s %q%s", node.Key(), what, pattern, suggest.DidYouMean(pattern, slices.Clone(known)))
		}
	}
	return patterns
}

func readAddresses(node Node) []string {
	list, _ := node.SomeTexts()
	for _, address := range list {
		if _, err := mail.ParseAddress(address); err != nil {
			node.Fail("%s: %q is not a mail address: write one such as \"ops@example.org\"", node.Key(), address)
		}
	}
	return list
}

// smtpPorts are the ports of the values of security.
var smtpPorts = map[string]int{"starttls": 587, "tls": 465, "none": 25}

func (c *Config) readSMTP(alert string, node Node) SMTP {
	s := SMTP{Security: "starttls"}
	t := node.Table("server", "security", "from", "user", "password_env", "password_file")
	if security, ok := t["security"].OneOf("starttls", "tls", "none"); ok {
		s.Security = security
	}
	s.Port = smtpPorts[s.Security]
	if server, ok := filled(t["server"]); ok {
		s.Host = server
		if host, port, err := net.SplitHostPort(server); err == nil {
			number, err := strconv.ParseUint(port, 10, 16)
			if err != nil || number == 0 || host == "" {
				t["server"].Fail("server = %q: write a host and a port, such as \"mail.example.org:587\"", server)
			}
			s.Host, s.Port = host, int(number)
		}
	} else if !t["server"].Exists() && node.IsTable() {
		node.Fail("[alert.%s.smtp] names no server: write server = \"mail.example.org:587\"", alert)
	}
	if from := t["from"]; from.Exists() {
		s.From, _ = from.Text()
		if _, err := mail.ParseAddress(s.From); err != nil {
			from.Fail("from = %q is not a mail address: write one such as \"quotactl@example.org\"", s.From)
		}
	} else if node.IsTable() {
		node.Fail("[alert.%s.smtp] does not say whom its mails are from: write from = \"quotactl@example.org\"", alert)
	}
	s.User, _ = filled(t["user"])
	s.PasswordEnv, s.PasswordFile = c.readSecret("the mail password of alert "+alert, t["password_env"], t["password_file"])
	switch password := t["password_env"].Exists() || t["password_file"].Exists(); {
	case t["user"].Exists() != password:
		node.Fail("[alert.%s.smtp] has half a login: write user with password_env or password_file, or none of them", alert)
	case password && s.Security == "none":
		t["security"].Fail("security = \"none\" with a login: anybody on the network could read the password; use \"starttls\" or \"tls\"")
	}
	return s
}
