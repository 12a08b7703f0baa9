package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

func newVersionCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Show the version",
		Example: `  quotactl version --json`,
		Args:    arguments(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			answer := struct {
				Version string `json:"version"`
				Go      string `json:"go"`
				OS      string `json:"os"`
				Arch    string `json:"arch"`
			}{version(), runtime.Version(), runtime.GOOS, runtime.GOARCH}
			if asJSON {
				return writeJSON(a.stdout, answer)
			}
			return writeText(a.stdout, fmt.Sprintf("quotactl version %s, %s, %s/%s\n", answer.Version, answer.Go, answer.OS, answer.Arch))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "answer in JSON")
	return cmd
}
