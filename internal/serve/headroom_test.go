package serve_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/serve"
)

// The policy of a limit whose headroom is automatic follows it.
func TestPolicyOfAutomaticHeadroom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, serve.Options{})
		b, start := w.open("shop/main"), time.Now()
		policies := func(want string) {
			t.Helper()
			w.post("/v1/charge", `{"budget":"shop/main","operation":"export","units":0}`).has("RateLimit-Policy", want+divided)
			synctest.Wait()
		}
		policies(policy)
		for day := range 5 {
			<-time.After(time.Until(start.Add(time.Duration(day)*24*time.Hour + time.Hour)))
			none := int64(0)
			must.Get(b.Report(t.Context(), budget.UpstreamReport{Limit: "daily", Used: &none}))(t)
		}
		policies(`"daily";q=119;w=86400`)
	})
}
