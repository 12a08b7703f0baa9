package secret

import (
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
)

func TestRedact(t *testing.T) {
	for url, want := range map[string]string{
		"sqlite:/var/lib/q@home.db":                                 "sqlite:/var/lib/q@home.db",
		"redis://localhost:6379/0":                                  "redis://localhost:6379/0",
		"redis://:hunter2@localhost:6379/0":                         "redis://:redacted@localhost:6379/0",
		"rediss://me:hunter2@h:1/0?timeout=1s":                      "rediss://me:redacted@h:1/0?timeout=1s",
		"redis://hunter2@localhost":                                 "redis://:redacted@localhost",
		"redis://me:hunter2/@x@localhost":                           "redis://me:redacted@localhost",
		"redis://me:hunter2?@localhost":                             "redis://me:redacted@localhost",
		"redis://me:%zzhunter2@localhost":                           "redis://me:redacted@localhost",
		"redis+cluster://me:hunter2@a:1,b:2,c:3":                    "redis+cluster://me:redacted@a:1,b:2,c:3",
		"redis+sentinel://a:1,b:2/m?sentinel_password=hunter2&db=1": "redis+sentinel://a:1,b:2/m?sentinel_password=redacted&db=1",
		"unix:///run/redis.sock?db=0&PASS=hunter2":                  "unix:///run/redis.sock?db=0&PASS=redacted",
		"hunter2": "(unreadable)",
	} {
		got := RedactURL(url)
		check.Equal(t, got, want, "redact(", url, ")")
		if strings.Contains(got, "hunter2") {
			t.Errorf("redact(%q) = %q shows the password", url, got)
		}
	}
}

func TestURLSecrets(t *testing.T) {
	for url, want := range map[string][]string{
		"":                                  nil,
		"sqlite:q.db":                       nil,
		"redis://localhost:6379/0":          nil,
		"redis://:hunter2@localhost:6379/0": {"hunter2"},
		"redis://me:hunter%2F2@h:1/0":       {"hunter%2F2", "hunter/2"},
		"redis://me:%zzhunter2@h":           {"%zzhunter2"},
		"redis://hunter2@localhost":         {"hunter2"},
		"redis+cluster://me:a@b@a:1,b:2":    {"a@b"},
	} {
		check.EqualSlices(t, OfURL(url), want, "urlSecrets(", url, ")")
	}
}
