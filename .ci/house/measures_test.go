package main

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestStructs(t *testing.T) {
	shapes := declared(module(t, map[string]string{
		"a/a.go": "package a\n\ntype First struct {\n\tA, B, C, D int\n\t*Other\n}\n\ntype Other struct{ x int }\n",
		"b/b.go": "package b\n\nfunc f() {\n\ttype second struct {\n\t\ta, b, c, d string\n\t\te, g, h, i int\n\t}\n\ttype third struct{ a, b, c, z, y, x, w, v, u int }\n}\n",
	}).packages)
	if got := above(shapes, 4); !maps.Equal(got, map[string]int{"a.First": 5, "b.second": 8, "b.third": 9}) {
		t.Errorf("above four fields: %v", got)
	}
	if got := twins(shapes); !maps.Equal(got, map[string]int{"a.First and b.second": 4}) {
		t.Errorf("pairs: %v", got)
	}
}

func TestFunctions(t *testing.T) {
	tree := module(t, map[string]string{
		"a/a.go":      "package a\n\nfunc Long() {\n\tfunc() {\n\t}()\n}\n\nvar f = func() {\n\n\n}\n\nfunc short() {\n\n}\n",
		"a/a_test.go": "package a\n\nfunc Test() {\n\n\n\n}\n",
		"a/b.lua":     "do\n  function x.long(a)\n    if a then\n    end\n  end\n\n  local function short() return 1 end\nend\n",
	})
	if got := functionsAbove(tree, tree.packages, 3); !maps.Equal(got, map[string]int{"a/a.go:3 Long": 4, "a/a.go:8 func": 4, "a/b.lua:2 x.long": 4}) {
		t.Errorf("above three lines: %v", got)
	}
}

func TestWaits(t *testing.T) {
	equal(t, "rooms", waiting(module(t, map[string]string{
		"computes/a.go": "package computes\n\nfunc (l *ledger) fitsFrom() (at int64, err error) { return 0, nil }\n",
		"decides/a.go":  "package decides\n\nfunc FirstFit() driver.Decision { return driver.Decision{} }\n",
		"scripts/a.go":  "package scripts\n",
		"scripts/a.lua": "local function waitShared(l)\n  return 1\nend\n",
		"asks/a.go":     "package asks\n\nfunc fits() bool { return true }\n\nfunc fitsText() string { return retryAt() }\n\nfunc fit() {}\n",
		"hands/a.go":    "package hands\n\nfunc retryAt(r refusal) int64 { return r.RetryAt }\n",
	}).packages), "computes", "decides", "scripts")
}

func TestBackUp(t *testing.T) {
	files := map[string]string{
		// a is above b and c but for the constant; time is of another module.
		"p/b.go": "package p\n\nimport \"time\"\n\ntype T struct{ at time.Time }\n\nfunc (t T) M() int { return small }\n",
		"p/c.go": "package p\n\nconst large = 2\n",
		"p/a.go": "package p\n\nimport \"m/q\"\n\nconst small = large\n\nfunc F(t T) int { return q.New().N() + t.M() }\n",
		"q/a.go": "package q\n\ntype N struct{}\n\nfunc (N) N() int { return 1 }\n",
		"q/b.go": "package q\n\nfunc New() N { return N{} }\n",
	}
	tree := module(t, files)
	m := backUp(tree, tree.packages)
	if want := "1 of 6; most in "; m.number != 17 || m.detail != want {
		t.Errorf("%d percent: %s", m.number, m.detail)
	}
}

func TestSorted(t *testing.T) {
	of := links{"z": {"m": 3, "a": 1}, "m": {"a": 2}, "a": {"z": 1}}
	equal(t, "order", sorted(of), "z", "m", "a")
	if up, all := against(of, sorted(of)); up != 1 || all != 7 {
		t.Errorf("%d of %d run back up", up, all)
	}
}

func TestPublic(t *testing.T) {
	tree := module(t, map[string]string{
		"a/a.go":          "package a\n",
		"cmd/c/a.go":      "package main\n",
		"internal/b/b.go": "package b\n\nimport _ \"testing\"\n",
		"k/k.go":          "package k\n\nimport _ \"testing\"\n",
	})
	equal(t, "public", public(tree.packages), "a", "k")
	equal(t, "kits", kitsOutside(tree.packages), "k")
}

func TestByNumber(t *testing.T) {
	list := byNumber(map[string]int{"a": 1, "c": 2, "b": 2})
	equal(t, "names", list, "b 2", "c 2", "a 1")
	if m := named("names", slices.Repeat(list, 4)); m.number != 12 || !strings.HasSuffix(m.detail, "b 2, …") {
		t.Errorf("%+v", m)
	}
}
