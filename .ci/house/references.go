package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"path"
	"slices"
	"strings"
)

// links counts the references of each file to each other file of its package.
type links map[string]map[string]int

// backUp measures how far the files of a package can be read from top to bottom: the percent,
// rounded up, of the references between its files that run back up. A reference is a name in
// one file of what another declares at the top: a function, method, type, constant or
// variable. The files stand in the order that sorted finds. The three packages of more than
// ten files that have the highest shares are named.
//
// What other modules and the standard library declare is not read, since that would take
// longer than all else: a call of a method on what they return is not counted, which are 3 of
// 1,000 references.
func backUp(t *tree, list []*pack) measure {
	c := &checker{t: t, done: map[string]*types.Package{}}
	up, all := 0, 0
	shares := map[string]int{}
	for _, p := range list {
		of, files := c.check(p)
		back, sum := against(of, sorted(of))
		up, all = up+back, all+sum
		if files > 10 {
			shares[p.path] = percent(back, sum)
		}
	}
	worst := byNumber(shares)
	return measure{"percent of references between files that run back up", percent(up, all),
		fmt.Sprintf("%d of %d; most in %s", up, all, strings.Join(worst[:min(3, len(worst))], ", "))}
}

func percent(part, of int) int { return (100*part + max(0, of-1)) / max(1, of) }

// A checker finds what the names in packages refer to.
type checker struct {
	t    *tree
	done map[string]*types.Package
}

// Import gives types what a package imports: a package of the module, or an empty one for
// another.
func (c *checker) Import(name string) (*types.Package, error) {
	if c.done[name] == nil {
		if within, ok := strings.CutPrefix(name, c.t.module+"/"); ok {
			c.check(packAt(c.t, within))
		} else {
			c.done[name] = types.NewPackage(name, path.Base(name))
			c.done[name].MarkComplete()
		}
	}
	return c.done[name], nil
}

// check finds the links of a package, and returns its number of files for Linux, too.
func (c *checker) check(p *pack) (of links, files int) {
	var list []*ast.File
	for _, f := range p.product() {
		if f.built {
			list = append(list, f.syntax)
		}
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: c, Error: func(error) {}} // what is not known is no fault
	name := c.t.module + "/" + p.path
	self, _ := config.Check(name, c.t.fset, list, info)
	if c.done[name] == nil {
		c.done[name] = self
	}
	of = links{}
	for use, found := range info.Uses {
		if found.Pkg() != self || !atTop(found) {
			continue
		}
		from, to := c.fileOf(use.Pos()), c.fileOf(found.Pos())
		if from == to {
			continue
		}
		if of[from] == nil {
			of[from] = map[string]int{}
		}
		of[from][to]++
	}
	return of, len(list)
}

func (c *checker) fileOf(pos token.Pos) string { return c.t.fset.File(pos).Name() }

// atTop reports whether something is declared at the top of a file, as methods are.
func atTop(of types.Object) bool {
	function, ok := of.(*types.Func)
	return ok && function.Signature().Recv() != nil || of.Parent() == of.Pkg().Scope()
}

// sorted orders files so that few references run back up. From the order of their names on
// it moves each file to where fewest do, until no move helps.
func sorted(of links) []string {
	set := map[string]bool{}
	for from, to := range of {
		set[from] = true
		for name := range to {
			set[name] = true
		}
	}
	order := slices.Sorted(maps.Keys(set))
	for moved := true; moved; {
		moved = false
		for i, name := range order {
			best, most := i, 0
			for j, gain := i-1, 0; j >= 0; j-- { // above order[j]
				if gain += of[name][order[j]] - of[order[j]][name]; gain > most {
					best, most = j, gain
				}
			}
			for j, gain := i+1, 0; j < len(order); j++ { // below order[j]
				if gain += of[order[j]][name] - of[name][order[j]]; gain > most {
					best, most = j, gain
				}
			}
			if best != i {
				order, moved = slices.Insert(slices.Delete(order, i, i+1), best, name), true
			}
		}
	}
	return order
}

// against counts the references that run back up an order, and all.
func against(of links, order []string) (up, all int) {
	at := map[string]int{}
	for i, name := range order {
		at[name] = i
	}
	for from, to := range of {
		for name, n := range to {
			if all += n; at[name] < at[from] {
				up += n
			}
		}
	}
	return up, all
}
