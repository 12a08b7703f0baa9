package main

import (
	"go/ast"
	"strings"
)

// waiting lists the rooms that compute a wait: the instant at which a refused call fits. Such a
// room declares a function in Go whose name has the word fit and whose first result is an
// instant or a decision (int64, time.Time, Decision), or one in Lua whose name has the word
// wait. A room that hands on what another has computed does neither. Nor does a room that asks
// the first for a guess, as Budget.Soonest does: when might it fit if others give back.
func waiting(list []*pack) (paths []string) {
	for _, p := range list {
		found := false
		for _, f := range p.product() {
			if f.syntax == nil {
				luaFunctions(string(f.text), func(name string, _, _ int) { found = found || strings.Contains(strings.ToLower(name), "wait") })
				continue
			}
			for _, d := range f.syntax.Decls {
				function, ok := d.(*ast.FuncDecl)
				found = found || ok && strings.Contains(strings.ToLower(function.Name.Name), "fit") && saysWhen(function.Type.Results)
			}
		}
		if found {
			paths = append(paths, p.path)
		}
	}
	return paths
}

// saysWhen reports whether the first result is an instant or a decision.
func saysWhen(results *ast.FieldList) bool {
	if results.NumFields() == 0 {
		return false
	}
	switch of := results.List[0].Type.(type) {
	case *ast.Ident:
		return of.Name == "int64" || of.Name == "Decision"
	case *ast.SelectorExpr:
		return of.Sel.Name == "Time" || of.Sel.Name == "Decision"
	}
	return false
}
