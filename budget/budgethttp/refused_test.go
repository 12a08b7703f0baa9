package budgethttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/must"
)

// quiet is a base that must not be called.
func quiet(t *testing.T) http.RoundTripper {
	return roundTrip(func(*http.Request) (*http.Response, error) {
		t.Error("a refused request was sent")
		return nil, errors.New("sent")
	})
}

// fullSpec is a budget of 5 units in a window, for calls of 5.
func fullSpec(window time.Duration) budget.Spec {
	return budget.Spec{
		Limits: []limit.Limit{{Name: "window", Limit: 5, Counts: limit.CountUnits, Window: limit.RollingWindow(window)}},
		Costs:  map[string]budget.Cost{"read": {Units: 5}, "dear": {Units: 6}},
	}
}

func spend(t *testing.T, b *budget.Budget) {
	t.Helper()
	must.Get(b.Charge(t.Context(), budget.Call{Operation: "read"}))(t)
}

func TestRefusedFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, fullSpec(time.Hour))
		spend(t, b)
		client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: quiet(t), Operation: "read"})}
		body := &closing{}
		_, err := client.Post("http://upstream", "text/plain", body) //nolint:bodyclose // there is none
		var refused *budget.RefusedError
		if !errors.Is(err, budget.ErrExhausted) || !errors.As(err, &refused) || refused.RetryAfter != time.Hour || refused.Limit != "window" {
			t.Errorf("%v", err)
		}
		if !body.closed || body.read {
			t.Errorf("the body is closed: %v, read: %v", body.closed, body.read)
		}
		want(t, b, 5, 1, 0)
	})
}

func TestRefusedAnswers429(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, fullSpec(90500*time.Millisecond))
		spend(t, b)
		transport := meter(t, b, budgethttp.Options{Base: quiet(t), Operation: "read", Refused: budgethttp.Answer429})
		client := &http.Client{Transport: transport}
		ask := func(method, limit, retryAfter string) {
			t.Helper()
			body := &closing{}
			req := must.Get(http.NewRequestWithContext(t.Context(), method, "http://upstream/?key=secret", body))(t)
			resp := do(t, client, req)
			text, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil || resp.StatusCode != 429 || resp.Status != "429 Too Many Requests" || resp.Request == nil || !resp.ProtoAtLeast(1, 1) ||
				resp.Header.Get("Retry-After") != retryAfter || resp.Header.Get(budgethttp.RefusedHeader) != limit ||
				resp.Header.Get("Content-Type") != "application/problem+json" || !body.closed || body.read {
				t.Errorf("%+v: %q, %v", resp, text, err)
			}
			if _, told := budgethttp.VerdictOf(resp); told {
				t.Error("VerdictOf says that it is the upstream's")
			}
			if method == http.MethodHead {
				if len(text) > 0 {
					t.Errorf("the answer to a HEAD has a body: %s", text)
				}
				return
			}
			var problem struct {
				Type, Title, Detail, Budget, Operation, Limit string
				Status                                        int
				RetryAfter                                    int64 `json:"retry_after_seconds"`
				// What clients of APIs look for.
				Seconds float64 `json:"retry_after"`
				Message string
				Error   struct{ Message string }
			}
			if err := json.Unmarshal(text, &problem); err != nil || problem.Status != 429 || problem.Budget != "video/key1" || problem.Operation != "read" ||
				fmt.Sprint(problem.Seconds) != retryAfter || problem.Message != problem.Detail || problem.Error.Message != problem.Detail ||
				problem.Detail == "" || problem.Type == "" || int64(len(text)) != resp.ContentLength {
				t.Errorf("%s: %+v, %v", text, problem, err)
			}
		}
		ask(http.MethodGet, "window", "91")
		ask(http.MethodHead, "window", "91")
		time.Sleep(90 * time.Second)
		ask(http.MethodPost, "window", "1")
		must.Get(b.Lock(t.Context(), budget.LockOrder{Until: budget.Until{After: time.Minute}, Why: "by hand", ByHand: true}))(t)
		ask(http.MethodGet, "video/key1", "60")

		// What no wait helps, and what is not the quota's fault, stays an error.
		dear := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: quiet(t), Operation: "dear", Refused: budgethttp.Answer429})}
		if _, err := dear.Get("http://upstream"); !errors.Is(err, budget.ErrNeverFits) { //nolint:bodyclose // there is none
			t.Error(err)
		}
	})
}

func TestRefusedWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, fullSpec(time.Minute))
		served := 0
		base := serve(t, func(http.ResponseWriter, *http.Request) { served++ })
		client := func(o budgethttp.Options) *http.Client {
			o.Base, o.Operation, o.Refused = base, "read", budgethttp.Wait
			return &http.Client{Transport: meter(t, b, o)}
		}
		spend(t, b)
		start := time.Now()
		for _, most := range []time.Duration{time.Second, time.Minute - 1} {
			_, err := client(budgethttp.Options{MaxWait: most}).Get("http://upstream") //nolint:bodyclose // there is none
			if !errors.Is(err, budget.ErrExhausted) || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 0 {
				t.Errorf("after %s: %v", time.Since(start), err)
			}
		}
		late := client(budgethttp.Options{})
		late.Timeout = 30 * time.Second
		if _, err := late.Get("http://upstream"); !errors.Is(err, budget.ErrExhausted) || time.Since(start) != 0 { //nolint:bodyclose // there is none
			t.Errorf("after %s: %v", time.Since(start), err)
		}
		read(t, client(budgethttp.Options{MaxWait: 2 * time.Minute}), "http://upstream")
		if took := time.Since(start); took < time.Minute || took > time.Minute+10*time.Millisecond || served != 1 {
			t.Errorf("after %s, %d were served", took, served)
		}
		want(t, b, 10, 2, 0)
	})
}

// In observe mode nothing is refused, and what nobody counted is not settled.
func TestObserveModeRefusesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec := fullSpec(time.Minute)
		spec.Observe = true
		b := open(t, spec)
		spend(t, b)
		o := &observer{}
		base := serve(t, func(http.ResponseWriter, *http.Request) {})
		for _, refused := range []budgethttp.Refused{budgethttp.Fail, budgethttp.Answer429, budgethttp.Wait} {
			for _, operation := range []string{"read", "dear"} {
				start := time.Now()
				client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: base, Operation: operation, Refused: refused, Observer: o})}
				if resp, _ := get(t, client, "http://upstream"); resp.StatusCode != 200 || time.Since(start) != 0 { //nolint:bodyclose // get closes it
					t.Errorf("%+v after %s", resp, time.Since(start))
				}
			}
		}
		o.check(t)
		for _, r := range o.charged {
			if r.Observed == "" {
				t.Errorf("%+v is not marked", r)
			}
		}
	})
}
