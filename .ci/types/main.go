// Types checks the types of the packages below a folder, and of their tests, for an operating
// system. It reads all imports as source, and so takes a tenth of what go vet takes, which needs
// them compiled.
//
//	go run -modfile=.ci/tools/go.mod ./.ci/types darwin .
package main

import (
	"log"
	"os"

	"golang.org/x/tools/go/packages"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: types GOOS FOLDER")
	}
	found, err := packages.Load(&packages.Config{
		Mode: packages.LoadAllSyntax, Tests: true, Env: append(os.Environ(), "GOOS="+os.Args[1], "CGO_ENABLED=0"), Dir: os.Args[2],
	}, "./...")
	if err != nil {
		log.Fatal("load packages: ", err)
	}
	if packages.PrintErrors(found) > 0 {
		os.Exit(1)
	}
}
