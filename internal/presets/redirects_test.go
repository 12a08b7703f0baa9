package presets_test

import (
	"testing"
	"testing/synctest"

	"github.com/quotactl/quotactl/budget/budgethttp"
)

// GitHub's redirects lead to servers whose limits are their own.
func TestRefusalsOfOtherServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, header := range []string{"", "Retry-After: 3000\r\n", "X-RateLimit-Remaining: 0\r\nX-RateLimit-Resource: core\r\nX-RateLimit-Reset: 2000000000\r\n"} {
			client := newClient(t, "github", "github/user1", []byte("HTTP/1.1 429 Too Many Requests\r\n"+header+"\r\nsecondary rate limit"))
			if v, refused := client.ask(t, "GET", "https://release-assets.githubusercontent.com/x"); refused || v != (budgethttp.Verdict{}) {
				t.Errorf("%q: %+v", header, v)
			}
			if locks := client.locks(t); len(locks) > 0 {
				t.Errorf("%q locks %+v", header, locks)
			}
		}
	})
}
