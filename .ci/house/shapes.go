package main

import (
	"fmt"
	"go/ast"
	"strings"
)

// A shape is a struct with a name.
type shape struct {
	name   string
	fields []string
}

// declared lists the structs of packages that have a name.
func declared(list []*pack) (shapes []shape) {
	for _, p := range list {
		for _, f := range p.product() {
			if f.syntax == nil {
				continue
			}
			ast.Inspect(f.syntax, func(n ast.Node) bool {
				if spec, ok := n.(*ast.TypeSpec); ok {
					if of, ok := spec.Type.(*ast.StructType); ok {
						shapes = append(shapes, shape{p.path + "." + spec.Name.Name, fieldsOf(of)})
					}
				}
				return true
			})
		}
	}
	return shapes
}

// fieldsOf lists the names of a struct's fields; an embedded one has its type's.
func fieldsOf(of *ast.StructType) (names []string) {
	for _, field := range of.Fields.List {
		for _, name := range field.Names {
			names = append(names, name.Name)
		}
		if field.Names == nil {
			names = append(names, embedded(field.Type))
		}
	}
	return names
}

func embedded(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.StarExpr:
		return embedded(of.X)
	case *ast.SelectorExpr:
		return of.Sel.Name
	case *ast.IndexExpr:
		return embedded(of.X)
	case *ast.IndexListExpr:
		return embedded(of.X)
	case *ast.Ident:
		return of.Name
	}
	return ""
}

// above are the structs with more fields than most, by their number.
func above(shapes []shape, most int) map[string]int {
	large := map[string]int{}
	for _, s := range shapes {
		if len(s.fields) > most {
			large[s.name] = len(s.fields)
		}
	}
	return large
}

// twins are the pairs of structs that have at least four names of fields in common, which are
// at least 60 % of those of the smaller one, by how many they have in common.
func twins(shapes []shape) map[string]int {
	sets := make([]map[string]bool, len(shapes))
	for i, s := range shapes {
		sets[i] = map[string]bool{}
		for _, name := range s.fields {
			if name != "_" {
				sets[i][strings.ToLower(name)] = true
			}
		}
	}
	pairs := map[string]int{}
	for i := range shapes {
		for j := range i {
			both := 0
			for name := range sets[j] {
				if sets[i][name] {
					both++
				}
			}
			if both >= 4 && both*100 >= 60*min(len(sets[i]), len(sets[j])) {
				pairs[shapes[j].name+" and "+shapes[i].name] = both
			}
		}
	}
	return pairs
}

// functionsAbove are the functions with more lines than most, by their lines.
func functionsAbove(t *tree, list []*pack, most int) map[string]int {
	long := map[string]int{}
	for _, p := range list {
		for _, f := range p.product() {
			add := func(name string, first, last int) {
				if lines := last - first + 1; lines > most {
					long[fmt.Sprintf("%s:%d %s", f.path, first, name)] = lines
				}
			}
			if f.syntax == nil {
				luaFunctions(string(f.text), add)
				continue
			}
			ast.Inspect(f.syntax, func(n ast.Node) bool {
				name := "func" // of a variable
				switch n := n.(type) {
				case *ast.FuncDecl:
					name = n.Name.Name
				case *ast.FuncLit:
				default:
					return true
				}
				add(name, t.fset.PositionFor(n.Pos(), false).Line, t.fset.PositionFor(n.End(), false).Line)
				return false
			})
		}
	}
	return long
}

// luaFunctions calls yield with each function outside all others: it begins a line, and ends
// with the next end as far to the right.
func luaFunctions(text string, yield func(name string, first, last int)) {
	name, indent, began := "", "", 0
	for i, line := range strings.Split(text, "\n") {
		code := strings.TrimLeft(line, " ")
		rest, ok := strings.CutPrefix(strings.TrimPrefix(code, "local "), "function ")
		switch {
		case name == "" && ok && !strings.HasSuffix(code, " end"):
			name, _, _ = strings.Cut(rest, "(")
			indent, began = line[:len(line)-len(code)], i
		case name != "" && (line == indent+"end" || strings.HasPrefix(line, indent+"end ")):
			yield(name, began+1, i+1)
			name = ""
		}
	}
}
