package serve_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/serve"
)

// The answer names every mistake in a body, with its member.
func TestFaults(t *testing.T) {
	w := newWorld(t, serve.Options{})
	got := w.post("/v1/charge", `{"operation":"no such!","units":1e3,"id":"a b","floor":-1,"use_headroom":"yes","job":"","region":"a/b","run":" ","fence":-1,
		"on_store_error":"maybe","wait_seconds":61,"lease_seconds":0.5,"dry_run":null,"unit":4,"units":5,"a~/b":null}`)
	got.is(400, "reason", "invalid")
	var body struct {
		Errors []struct{ Pointer, Detail string }
	}
	must.Do(t, json.Unmarshal([]byte(got.text), &body))
	said := map[string]string{}
	for _, e := range body.Errors {
		said[e.Pointer] = e.Detail
		if !strings.Contains(got.body["detail"].(string), e.Detail) {
			t.Errorf("the detail does not tell %q", e.Detail)
		}
	}
	for pointer, detail := range map[string]string{
		"#/budget": "missing", "#/operation": "use letters", "#/id": "printable ASCII", "#/floor": "use 0 to", "#/use_headroom": "true or false", "#/job": "empty",
		"#/region": "use letters", "#/run": "use letters", "#/fence": "from 1 on", "#/on_store_error": `"open"`, "#/wait_seconds": "from 0 to 60", "#/lease_seconds": "from 1 to 86400",
		"#/unit": `did you mean "units"`, "#/units": "twice", "#/a~0~1b": "no such member",
	} {
		check.Contains(t, said[pointer], detail, pointer)
	}
	for body, detail := range map[string]string{
		``: "not JSON", `{"budget":`: "not JSON", `[]`: "not a JSON object", `"shop/main"`: "not a JSON object", `null`: "not a JSON object", `{} {}`: "not JSON",
		`{"budget":"shop/main","operation":"get","Operation":"get"}`:                          "no such member",
		`{"budget":"shop/main","operation":"get","wait_seconds":1,"dry_run":true}`:            "leave out wait_seconds or dry_run",
		`{"budget":"shop/main","operation":"get","units":` + fmt.Sprint(math.MaxInt64) + `0}`: "whole number",
		`{"budget":["shop/main"],"operation":{"get":","}}`:                                    "in quotes",
		`{` + strings.Repeat(`"x":1,`, 5000) + `"y":2}`:                                       "and 49",
		`{"` + strings.Repeat("x", 9000) + `":1}`:                                             "xxx…",
	} {
		got := w.post("/v1/charge", body)
		if got.is(400, "reason", "invalid"); !strings.Contains(got.text, strings.ReplaceAll(detail, `"`, `\"`)) || len(got.text) > 8000 {
			t.Errorf("%.80s: %.300s, want %s", body, got.text, detail)
		}
	}
}

// Escapes, blanks and other spellings mean what they mean in JSON.
func TestWritings(t *testing.T) {
	w := newWorld(t, serve.Options{})
	w.post("/v1/charge", " \t{\r\n\"bud\\u0067et\" : \"shop\\/main\" ,\"operation\":\"g\\u0065t\", \"id\":\"a\\\"}\\\\,\" }\n").is(200, "id", `a"}\,`)
	w.post("/v1/charge", `{"budget":"shop/main","operation":"get","lease_seconds":1.5e1,"id":"x"}`).is(200, "lease_seconds", 15)
	w.post("/v1/charge", `{"budget":"shop/main","operation":"get","id":"ü"}`).is(400)
	w.post("/v1/charge", "{\"budget\":\"shop/main\",\"operation\":\"get\",\"id\":\"\xff\"}").is(400)
}

// FuzzRequest compares the reader of bodies with encoding/json: it accepts only one object
// of known members, each once, and reads the same values. No body makes it panic.
func FuzzRequest(f *testing.F) {
	for _, a := range askings() {
		f.Add(a.path, a.body)
	}
	f.Add("/v1/charge", `{"budget":"shop/main","operation":"get","units":null,"lease_seconds":1e1,"id":"\u0041\"","run":"r/1"}`)
	f.Add("/v1/charge", `{"budget":"shop/main","operation":"get","job":{"a":["}",{}],"b":"\\"},"x":[[]]}`)
	f.Fuzz(func(t *testing.T, path, body string) {
		if path != "/v1/charge" && path != "/v1/settle" && path != "/v1/release" {
			return
		}
		w := newWorld(t, serve.Options{})
		got := w.post(path, strings.Replace(body, `"wait_seconds"`, `"floor"`, 1)) // nobody waits here
		body = strings.Replace(body, `"wait_seconds"`, `"floor"`, 1)
		if got.status == 500 {
			t.Fatalf("%s", got.text)
		}
		if got.status == 400 || got.status == 413 {
			return
		}
		var members map[string]any
		if err := json.Unmarshal([]byte(body), &members); err != nil {
			t.Fatalf("taken, but %v: %s", err, got.text)
		}
		for _, name := range []string{"operation", "id", "budget"} {
			if said, told := got.body[name]; told && members[name] != nil && said != members[name] {
				t.Errorf("%s is %v, but %v was understood", name, members[name], said)
			}
		}
		if units, given := members["units"].(float64); given && got.body["units"] != nil && got.body["units"] != units {
			t.Errorf("%v units, but %v were understood", units, got.body["units"])
		}
		if lease, given := members["lease_seconds"].(float64); given && got.body["lease_seconds"] != nil && math.Abs(lease-got.body["lease_seconds"].(float64)) > time.Microsecond.Seconds() {
			t.Errorf("a lease of %v s, but %v was understood", lease, got.body["lease_seconds"])
		}
	})
}
