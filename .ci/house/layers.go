package main

import (
	"encoding/json"
	"io"
)

// layers writes the table as a configuration of golangci-lint that has depguard alone: for
// each room a list of all that it may import.
func layers(to io.Writer, module string, rooms []*room) error {
	type rule struct {
		Files    []string `json:"files"`
		ListMode string   `json:"list-mode"`
		Allow    []string `json:"allow"`
	}
	rules := map[string]rule{}
	for _, r := range rooms {
		one := rule{[]string{"**/" + r.name + "/*.go"}, "strict", []string{"$gostd"}}
		if r.is("tests") { // an outer test imports its own package
			one.Allow = append(one.Allow, module+"/"+r.name+"$")
		} else {
			one.Files = append(one.Files, "!$test")
		}
		for _, name := range r.rooms {
			one.Allow = append(one.Allow, module+"/"+name+"$")
		}
		one.Allow = append(one.Allow, r.libraries...)
		rules[r.name] = one
	}
	type object = map[string]any
	return json.NewEncoder(to).Encode(object{
		"version": "2",
		"run":     object{"timeout": "10m", "relative-path-mode": "gomod"},
		"linters": object{
			"default":    "none",
			"enable":     []string{"depguard"},
			"settings":   object{"depguard": object{"rules": rules}},
			"exclusions": object{"generated": "disable"},
		},
	})
}
