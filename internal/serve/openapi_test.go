package serve_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/serve"
)

// description is the served OpenAPI file.
type description struct {
	root  map[string]any
	paths map[string]any
}

func readDescription(t *testing.T) description {
	t.Helper()
	got := newWorld(t, serve.Options{}).get("/v1/openapi.json")
	got.is(200, "openapi", "3.1.1")
	got.has("Content-Type", "application/json")
	return description{got.body, got.body["paths"].(map[string]any)}
}

// at follows a $ref, if there is one.
func (d description) at(node any) map[string]any {
	n := node.(map[string]any)
	ref, ok := n["$ref"].(string)
	if !ok {
		return n
	}
	var at any = d.root
	for _, part := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
		at = at.(map[string]any)[part]
	}
	return d.at(at)
}

// response is the description of one answer.
func (d description) response(method, path string, status int) map[string]any {
	operation, ok := d.paths[path].(map[string]any)[strings.ToLower(method)].(map[string]any)
	if !ok {
		return nil
	}
	response := operation["responses"].(map[string]any)[strconv.Itoa(status)]
	if response == nil {
		return nil
	}
	return d.at(response)
}

// seen is a status with which a path has answered.
type seen struct {
	method, path string
	status       int
}

// asking is a request and the expected answer.
type asking struct {
	method, path, body string
	status             int
	reason             string
	change             func(*http.Request)
	rig                func(*rigged)
	options            serve.Options
}

const (
	chargeGet   = `{"budget":"shop/main","operation":"get"}`
	settleOpen  = `{"budget":"shop/main","id":"open","units":1}`
	releaseOpen = `{"budget":"shop/main","id":"open"}`
)

// posts has a valid body for each path.
var posts = map[string]string{"/v1/charge": chargeGet, "/v1/settle": settleOpen, "/v1/release": releaseOpen}

// brokenBody fails when it is read.
type brokenBody struct{ err error }

func (b brokenBody) Read([]byte) (int, error) { return 0, b.err }

func (brokenBody) Close() error { return nil }

// holdsSome has a pass, and a run, hold units.
func holdsSome(r *rigged) {
	for _, region := range []string{"", "US"} {
		item := driver.Item{
			ID: "hold" + region, Fence: "~daily/7", Labels: driver.Labels{Job: "daily", Region: region}, Lease: 60_000_000,
			Needs: []driver.Need{{Operation: "get", Units: 1, Calls: 1}}, Units: 1,
		}
		batch := driver.Batch{Budget: "shop/main", Now: time.Now().UnixMicro(), Items: []driver.Item{item}}
		if got, err := r.Store.Decide(context.Background(), batch); err != nil || got.Items[0].Result != driver.Granted {
			panic(fmt.Sprint(got, err))
		}
	}
}

// askings has requests that cause each status of each path.
func askings() (list []asking) {
	add := func(method, path, body string, status int, reason string, rig func(*rigged)) {
		list = append(list, asking{method: method, path: path, body: body, status: status, reason: reason, rig: rig})
	}
	everywhere := func(method, path, body string) {
		changed := func(status int, reason string, change func(*http.Request), o serve.Options) {
			list = append(list, asking{method: method, path: path, body: body, status: status, reason: reason, change: change, options: o})
		}
		changed(200, "", nil, serve.Options{})
		changed(401, "no_token", nil, serve.Options{Token: "0123456789abcdef"})
		changed(403, "not_local", func(r *http.Request) { r.Header.Set("Origin", "https://example.com") }, serve.Options{})
		changed(403, "not_local", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, serve.Options{})
		changed(403, "not_local", func(r *http.Request) { r.Host = "evil.example:9090" }, serve.Options{Loopback: true})
		changed(405, "method", func(r *http.Request) { r.Method = http.MethodPut }, serve.Options{})
		changed(431, "header_count", func(r *http.Request) { r.Header["X-Many"] = make([]string, serve.MaxHeaderFields+1) }, serve.Options{})
		changed(503, "busy", nil, serve.Options{UnderWay: -1})
	}
	for path, body := range posts {
		everywhere(http.MethodPost, path, body)
		list = append(list, asking{method: http.MethodPost, path: path, body: body, status: 403, reason: "read_token", change: func(r *http.Request) {
			r.Header.Set("Authorization", "Bearer "+readToken)
		}, options: serve.Options{Token: token, ReadToken: readToken}})
		changed := func(status int, reason string, change func(*http.Request)) {
			list = append(list, asking{method: http.MethodPost, path: path, body: body, status: status, reason: reason, change: change})
		}
		changed(413, "body_size", func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(strings.Repeat(" ", serve.MaxBody+1))) })
		changed(408, "body_time", func(r *http.Request) { r.Body = brokenBody{os.ErrDeadlineExceeded} })
		changed(400, "invalid", func(r *http.Request) { r.Body = brokenBody{io.ErrUnexpectedEOF} })
		for _, media := range [][]string{
			{"application/x-www-form-urlencoded"}, {"text/plain"}, {"application/json", "application/json"}, {""}, nil,
			{"application/json; charset=utf-16"}, {"application/json; charset=iso-8859-1"}, {`application/json; charset="UTF-32"`}, {"application/json; charset"},
		} {
			changed(415, "media_type", func(r *http.Request) { r.Header["Content-Type"] = media })
		}
		for _, coding := range [][]string{{"gzip"}, {"identity, gzip"}, {"identity", "br"}, {"unknown"}} {
			changed(415, "media_type", func(r *http.Request) { r.Header["Content-Encoding"] = coding })
		}
		add(http.MethodPost, path, strings.Replace(body, "shop/main", "other/main", 1), 404, "unknown_budget", nil)
		add(http.MethodPost, path, `{`, 400, "invalid", nil)
		add(http.MethodPost, path, body[:len(body)-1]+`,"more":1}`, 400, "invalid", nil)
	}
	everywhere(http.MethodGet, "/v1/status", "")
	for _, path := range []string{"/v1/status", "/v1/why?budget=shop/main&operation=get"} {
		add(http.MethodGet, path, "", 200, "", holdsSome)
	}
	everywhere(http.MethodGet, "/v1/overview", "")
	everywhere(http.MethodGet, "/v1/openapi.json", "")
	const why = "/v1/why?budget=shop/main&operation=export&job=j"
	everywhere(http.MethodGet, why, "")
	for _, query := range []string{"", "?budget=shop/main", "?operation=get", "?budget=shop/main&operation=get&name=a", "?budget=a&budget=b&operation=get"} {
		add(http.MethodGet, "/v1/why"+query, "", 400, "invalid", nil)
	}
	add(http.MethodGet, "/v1/why?budget=a&operation=get", "", 404, "unknown_budget", nil)
	add(http.MethodGet, "/v1/why?budget=shop/main&operation=other", "", 422, "unknown_operation", nil)

	charge := func(body string, status int, reason string, rig func(*rigged)) {
		add(http.MethodPost, "/v1/charge", body, status, reason, rig)
	}
	charge(`{"budget":"shop/main","operation":"get","id":" "}`, 400, "invalid", nil)
	charge(`{"budget":"shop/main","operation":"get","id":"open"}`, 409, "conflict", nil)
	charge(`{"budget":"shop/main","operation":"get","job":"j","fence":7}`, 409, "fenced", decides(driver.Decision{Result: driver.Fenced, Limit: -1}, nil))
	charge(`{"budget":"shop/main","operation":"huge"}`, 422, "never_fits", nil)
	charge(`{"budget":"shop/main","operation":"other"}`, 422, "unknown_operation", nil)
	charge(chargeGet, 422, "too_many_units", decides(driver.Decision{Result: driver.Overflow, Limit: -1}, nil))
	charge(`{"budget":"shop/main","operation":"export","units":61}`, 429, "exhausted", nil)
	charge(`{"budget":"shop/main","operation":"export","floor":5}`, 429, "exhausted", decides(driver.Decision{Result: driver.Refused, Limit: 2, Remaining: 40, Kept: []int64{10}, RetryAt: 1}, nil))
	charge(chargeGet, 429, "locked", decides(driver.Decision{Result: driver.Refused, Limit: -1, Locked: true, Why: "quotaExceeded: 403", RetryAt: 1}, nil))
	charge(chargeGet, 429, "recovering", decides(driver.Decision{Result: driver.Refused, Limit: -1, Recovering: true, RetryAt: 1}, nil))
	charge(chargeGet, 500, "failed", decides(driver.Decision{Result: 99, Limit: -1}, nil))
	for reason, err := range map[string]error{"unavailable": budget.ErrUnavailable, "clock": budget.ErrClock, "damaged": budget.ErrDamaged, "lost": budget.ErrLost, "store_config": budget.ErrStoreConfig} {
		charge(chargeGet, 503, reason, decides(driver.Decision{}, err))
	}
	for path, body := range map[string]string{"/v1/settle": settleOpen, "/v1/release": releaseOpen} {
		for _, c := range []struct {
			status int
			reason string
			result driver.FinishResult
			err    error
		}{
			{409, "conflict", driver.FinishConflict, nil}, {410, "expired", driver.FinishExpired, nil}, {500, "failed", 99, nil},
			{503, "unavailable", driver.FinishLate, nil}, {503, "unavailable", 0, context.DeadlineExceeded}, {503, "clock", 0, budget.ErrClock},
		} {
			add(http.MethodPost, path, body, c.status, c.reason, func(r *rigged) {
				r.finish = func() (driver.Finished, error) { return driver.Finished{Result: c.result}, c.err }
			})
		}
	}
	add(http.MethodPost, "/v1/settle", settleOpen, 422, "too_many_units", func(r *rigged) {
		r.finish = func() (driver.Finished, error) { return driver.Finished{Result: driver.FinishOverflow}, nil }
	})
	add(http.MethodPost, "/v1/settle", `{"budget":"shop/main","id":"open","units":-1}`, 400, "invalid", nil)
	add(http.MethodGet, "/v1/status?budget=a", "", 404, "unknown_budget", nil)
	add(http.MethodGet, "/v1/status?name=a", "", 400, "invalid", nil)
	add(http.MethodGet, "/v1/overview?budget=a", "", 404, "unknown_budget", nil)
	add(http.MethodGet, "/v1/overview?name=a", "", 400, "invalid", nil)
	for reason, err := range map[string]error{"unavailable": budget.ErrUnavailable, "failed": errors.New("something else")} {
		status := map[string]int{"unavailable": 503, "failed": 500}[reason]
		add(http.MethodGet, "/v1/status", "", status, reason, func(r *rigged) {
			r.look = func() (driver.View, error) { return driver.View{}, err }
		})
		add(http.MethodGet, "/v1/overview", "", status, reason, func(r *rigged) {
			r.look = func() (driver.View, error) { return driver.View{}, err }
		})
		add(http.MethodGet, why, "", status, reason, func(r *rigged) {
			r.look = func() (driver.View, error) { return driver.View{}, err }
		})
	}
	return list
}

func decides(d driver.Decision, err error) func(*rigged) {
	return func(r *rigged) {
		r.decide = func(context.Context, driver.Batch) (driver.Decisions, error) {
			return driver.Decisions{Items: []driver.Decision{d}}, err
		}
	}
}

// Each path answers with each status that is described for it, as described, and with no
// other.
func TestDescription(t *testing.T) {
	d := readDescription(t)
	answered := map[seen]bool{}
	reasons := map[string]bool{}
	for _, a := range askings() {
		w := newWorld(t, serve.Options{})
		w.post("/v1/charge", `{"budget":"shop/main","operation":"export","id":"open","lease_seconds":60}`).is(200)
		if a.options.Token != "" || a.options.UnderWay != 0 || a.options.Loopback {
			w = newWorld(t, a.options)
		}
		if a.rig != nil {
			a.rig(w.store)
		}
		r := w.request(a.method, a.path, a.body)
		if a.change != nil {
			a.change(r)
		}
		got := w.do(r)
		path, _, _ := strings.Cut(a.path, "?")
		what := fmt.Sprintf("%s %s %s", a.method, a.path, a.body)
		if got.status != a.status || a.reason != "" && got.body["reason"] != a.reason {
			t.Errorf("%s: %d %s, want %d %s", what, got.status, got.text, a.status, a.reason)
			continue
		}
		answered[seen{strings.ToLower(a.method), path, a.status}] = true
		if a.reason != "" {
			reasons[a.reason] = true
		}
		d.holds(t, what, d.response(a.method, path, a.status), got)
	}
	for path, item := range d.paths {
		for method, operation := range item.(map[string]any) {
			for status := range operation.(map[string]any)["responses"].(map[string]any) {
				code, err := strconv.Atoi(status)
				if err != nil || !answered[seen{method, path, code}] {
					t.Errorf("%s %s %s is described, and never answered", method, path, status)
				}
			}
		}
	}
	for _, elsewhere := range []string{"interrupted", "no_path", "malformed", "header_size"} { // TestChargeInterrupted, TestUnknownPath; the last two by the listener
		reasons[elsewhere] = true
	}
	var described []string
	for _, reason := range d.at(d.schema("Problem")["properties"].(map[string]any)["reason"])["enum"].([]any) {
		described = append(described, reason.(string))
	}
	slices.Sort(described)
	if want := slices.Sorted(maps.Keys(reasons)); !slices.Equal(described, want) {
		t.Errorf("the reasons %v are described, %v are answered", described, want)
	}
}

func (d description) schema(name string) map[string]any {
	return d.at(map[string]any{"$ref": "#/components/schemas/" + name})
}

// holds checks an answer against its description.
func (d description) holds(t *testing.T, what string, response map[string]any, got answer) {
	t.Helper()
	if response == nil {
		t.Errorf("%s: %d is not described", what, got.status)
		return
	}
	media, _ := response["content"].(map[string]any)[got.header.Get("Content-Type")].(map[string]any)
	if media == nil {
		t.Errorf("%s: %d is not described as %s", what, got.status, got.header.Get("Content-Type"))
		return
	}
	check.NoError(t, d.fits(media["schema"], any(got.body), what), "in", got.text)
	described := map[string]bool{"Content-Type": true, "Cache-Control": true, "Connection": true}
	fields, _ := response["headers"].(map[string]any)
	for name, field := range fields {
		name = http.CanonicalHeaderKey(name)
		described[name] = true
		if got.header.Get(name) == "" {
			t.Errorf("%s: %d has no %s", what, got.status, name)
		}
		if d.at(field)["schema"] == nil {
			t.Errorf("%s has no schema", name)
		}
	}
	for name := range got.header {
		if !described[name] {
			t.Errorf("%s: %d: the field %s is not described", what, got.status, name)
		}
	}
}

// The description has the members that the paths take, with their bounds.
func TestDescribedMembers(t *testing.T) {
	d := readDescription(t)
	values := map[string]string{
		"budget": `"shop/main"`, "operation": `"get"`, "units": "1", "id": `"x"`, "floor": "0", "use_headroom": "false", "job": `"j"`, "region": `"r"`, "run": `"r"`, "fence": "1",
		"on_store_error": `"closed"`, "wait_seconds": "1", "lease_seconds": "1", "dry_run": "false",
	}
	for path, name := range map[string]string{"/v1/charge": "ChargeRequest", "/v1/settle": "SettleRequest", "/v1/release": "ReleaseRequest"} {
		schema := d.schema(name)
		body := d.at(d.paths[path].(map[string]any)["post"].(map[string]any)["requestBody"])["content"].(map[string]any)["application/json"].(map[string]any)
		if fmt.Sprint(d.at(body["schema"])) != fmt.Sprint(schema) || schema["additionalProperties"] != false {
			t.Errorf("%s does not take a %s alone", path, name)
		}
		properties := schema["properties"].(map[string]any)
		required := schema["required"].([]any)
		for member := range properties {
			if values[member] == "" {
				t.Errorf("%s: %s is described, and no member", path, member)
			}
		}
		for member, value := range values {
			body := map[string]json.RawMessage{member: json.RawMessage(value)}
			for _, name := range required {
				body[name.(string)] = json.RawMessage(values[name.(string)])
			}
			for _, name := range needed(schema, member) {
				body[name] = json.RawMessage(values[name])
			}
			d.taken(t, path, properties[member], body, member)
		}
		for _, member := range required {
			body := map[string]json.RawMessage{}
			for _, name := range required {
				if name != member {
					body[name.(string)] = json.RawMessage(values[name.(string)])
				}
			}
			if got := newWorld(t, serve.Options{}).post(path, text(body)); got.status != 400 || !strings.Contains(got.text, "missing") {
				t.Errorf("%s without %s: %s", path, member, got.text)
			}
		}
	}
}

// needed has the other members that a member requires.
func needed(schema map[string]any, member string) (list []string) {
	all, _ := schema["dependentRequired"].(map[string]any)
	others, _ := all[member].([]any)
	for _, name := range others {
		list = append(list, name.(string))
	}
	return list
}

func text(body map[string]json.RawMessage) string {
	out, err := json.Marshal(body)
	if err != nil {
		return err.Error()
	}
	return string(out)
}

// taken checks a member against its schema, with values within and beyond its bounds.
func (d description) taken(t *testing.T, path string, schema any, body map[string]json.RawMessage, member string) {
	t.Helper()
	probes := []string{
		string(body[member]), `null`, `true`, `0`, `1`, `-1`, `1.5`, `0.0001`, `61`, `86401`, `1000000000000001`, `"x"`, `"a/b"`, `"a b"`, `"open"`, `""`, `[]`, `{}`, `"` + strings.Repeat("x", 129) + `"`,
	}
	for _, probe := range probes {
		body[member] = json.RawMessage(probe)
		got := newWorld(t, serve.Options{}).post(path, text(body))
		var value any
		must.Do(t, json.Unmarshal([]byte(probe), &value))
		wrong := errors.New("there is no such member")
		if schema != nil {
			wrong = d.fits(schema, value, member)
		}
		// A malformed name of a budget is an unknown budget.
		invalid := got.status == 400 || member == "budget" && got.status == 404
		if wrong == nil && got.status == 400 || wrong != nil && !invalid {
			t.Errorf("%s %s: %d %s, but as it is described: %v", path, text(body), got.status, got.text, wrong)
		}
	}
}
