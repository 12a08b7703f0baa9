// Command house holds the packages of this module to the table .ci/house/rooms, and measures
// them.
//
//	go run ./.ci/house check    # what .ci/measures runs
//	go run ./.ci/house draw     # makes docs/house.svg, and the map in CONTRIBUTING.md
//	go run ./.ci/house layers   # the table as a configuration of golangci-lint
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1)
	}
}

// The files that are made from the table.
const (
	pictureFile = "docs/house.svg"
	mapFile     = "CONTRIBUTING.md"
)

func run(args []string, to io.Writer) error {
	text, err := os.ReadFile(table)
	if err != nil {
		return err
	}
	rooms, err := readRooms(string(text))
	if err != nil {
		return err
	}
	switch strings.Join(args, " ") {
	case "check":
		return check(rooms, to)
	case "draw":
		drawn, err := draw(rooms)
		if err != nil {
			return err
		}
		for name, text := range drawn {
			err = errors.Join(err, os.WriteFile(name, []byte(text), 0o644))
		}
		return err
	case "layers":
		module, err := modulePath()
		if err != nil {
			return err
		}
		return layers(to, module, rooms)
	}
	return errors.New("usage: go run ./.ci/house check | draw | layers")
}

// draw returns the files that are made from the table.
func draw(rooms []*room) (map[string]string, error) {
	page, err := os.ReadFile(mapFile)
	if err != nil {
		return nil, err
	}
	text, err := drawMap(string(page), rooms)
	if err != nil {
		return nil, err
	}
	svg, err := picture(rooms)
	return map[string]string{pictureFile: svg, mapFile: text}, err
}

// check prints all measures, and what is wrong with the table and what is made from it.
func check(rooms []*room, to io.Writer) error {
	module, err := modulePath()
	if err != nil {
		return err
	}
	names, err := sources()
	if err != nil {
		return err
	}
	t, err := parse(module, os.DirFS("."), names)
	if err != nil {
		return err
	}
	wrong := faults(rooms, t)
	drawn, err := draw(rooms)
	if err != nil {
		return err
	}
	for _, name := range []string{pictureFile, mapFile} {
		if now, err := os.ReadFile(name); err != nil {
			return err
		} else if string(now) != drawn[name] {
			wrong = append(wrong, name+" does not match "+table+": go run ./.ci/house draw")
		}
	}
	list, err := measures(rooms, t)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(bounds)
	if err != nil {
		return err
	}
	report, beyond, err := compare(list, string(text))
	if err != nil {
		return err
	}
	wrong = append(wrong, beyond...)
	if _, err := fmt.Fprintln(to, strings.Join(append(report, wrong...), "\n")); err != nil {
		return err
	}
	if len(wrong) > 0 {
		return errors.New("see CONTRIBUTING.md, The house")
	}
	return nil
}

func modulePath() (string, error) {
	out, err := exec.Command("go", "list", "-m").Output()
	return strings.TrimSpace(string(out)), err
}
