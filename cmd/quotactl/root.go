package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/internal/screen"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// run is the whole program but for what it reads of the process: args are
// without the program's name, env is os.LookupEnv. It returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, env func(string) (string, bool)) int {
	a := &app{stdout: stdout, stderr: stderr, env: env, now: time.Now, size: screen.Size, zone: time.Local}
	return a.execute(ctx, args)
}

// execute runs the command that args name and returns the exit code.
func (a *app) execute(ctx context.Context, args []string) int {
	root := newRootCommand(a)
	root.SetArgs(args)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	return a.finish(root.ExecuteContext(ctx))
}

const rootLong = `quotactl keeps your jobs within the quotas of the APIs they call. Before each
call it checks, across all processes and machines, whether the call still fits;
if not, it says when it will.

Exit codes:
  0    done (also a run that SIGTERM or Ctrl-C drained)
  1    failed
  2    wrong usage or configuration, or a charge that can never fit
  69   the store is out of reach
  75   exhausted: the units do not fit now
  130  interrupted`

func newRootCommand(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "quotactl",
		Short: "Keep jobs within the quotas of the APIs they call",
		Example: `  quotactl run --once --sandbox
  quotactl status
  quotactl charge youtube/key1 search.list && ./one-search.sh`,
		Long:          rootLong,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          knownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return a.resolve(cmd.Flags())
		},
		SuggestionsMinimumDistance: 2,
	}
	root.SetFlagErrorFunc(badFlag)
	root.SetHelpCommand(newHelpCommand())
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", ".FlagUsagesWrapped 80"))
	flags := root.PersistentFlags()
	flags.StringVarP(&a.configPath, "config", "c", "", "configuration `FILE` (else QUOTACTL_CONFIG, else costs.toml)")
	flags.StringVar(&a.storeURL, "store", "", "store `URL` (else QUOTACTL_STORE, else the configuration's)")
	flags.StringVar(&a.logFormat, "log-format", "auto", "write logs in `FORMAT`: words, text or json (auto: words on a terminal, else text)")
	flags.StringVar(&a.logLevel, "log-level", "info", "lowest `LEVEL` to log: debug, info, warn or error")
	flags.StringVar(&a.colour, "color", "auto", "`WHEN` to use colours: auto (on a terminal, unless NO_COLOR is set), always or never")
	for _, g := range []struct {
		group, title string
		commands     []*cobra.Command
	}{
		{"spend", "Spend:", []*cobra.Command{
			newChargeCommand(a), newExecCommand(a), newMeterCommand(a), newSettleCommand(a), newReleaseCommand(a), newFeedbackCommand(a),
		}},
		{"look", "Look:", []*cobra.Command{
			newStatusCommand(a), newPlanCommand(a), newWhyCommand(a), newLedgerCommand(a),
		}},
		{"jobs", "Jobs:", []*cobra.Command{
			newJobsCommand(a), newNextCommand(a), newRunsCommand(a), newRunCommand(a), newTriggerCommand(a), newCancelCommand(a),
			newPauseCommand(a), newResumeCommand(a), newForgetCommand(a),
		}},
		{"operate", "Operate:", []*cobra.Command{
			newInitCommand(a), newCheckCommand(a), newDoctorCommand(a), newSandboxCommand(a), newAlertCommand(a), newLockCommand(a),
			newUnlockCommand(a), newResetCommand(a), newClockCommand(a), newExportCommand(a), newImportCommand(a), newVersionCommand(a),
		}},
	} {
		root.AddGroup(&cobra.Group{ID: g.group, Title: g.title})
		for _, command := range g.commands {
			command.GroupID = g.group
			root.AddCommand(command)
		}
	}
	root.SetHelpCommandGroupID("operate")
	root.SetCompletionCommandGroupID("operate")
	return root
}

// newHelpCommand is cobra's own, with an error for unknown commands.
func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Help about a command",
		Example: `  quotactl help charge`,
		Args:    arguments(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			topic, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return knownCommand(cmd.Root(), args)
			}
			topic.InitDefaultHelpFlag()
			topic.InitDefaultVersionFlag()
			return topic.Help()
		},
	}
}

// version is that of the module as it was built.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}

// resolve completes the global flags: flag beats environment beats default.
func (a *app) resolve(flags *pflag.FlagSet) error {
	a.storeFlag = flags.Changed("store")
	if !flags.Changed("config") {
		a.configPath = "costs.toml"
		if path, ok := a.env("QUOTACTL_CONFIG"); ok && path != "" {
			a.configPath = path
		}
	}
	if !a.storeFlag {
		a.storeURL, _ = a.env("QUOTACTL_STORE")
	}
	if !slices.Contains([]string{"auto", "words", "text", "json"}, a.logFormat) {
		return usage("--log-format %q: use auto, words, text or json", a.logFormat)
	}
	if !slices.Contains([]screen.Use{screen.Auto, screen.Always, screen.Never}, screen.Use(a.colour)) {
		return usage("--color %q: use auto, always or never", a.colour)
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(a.logLevel)); err != nil {
		return usage("--log-level %q: use debug, info, warn or error", a.logLevel)
	}
	a.output()
	return nil
}

// knownCommand refuses what is no command, with those that look alike.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usage("unknown command %q%s; quotactl --help lists the commands", args[0], didYouMean("", cmd.SuggestionsFor(args[0])))
}

// badFlag makes a fault in the flags a wrong usage, with a hint.
func badFlag(cmd *cobra.Command, err error) error {
	hint := ""
	if flag, _, ok := strings.Cut(err.Error(), " in -"); ok && strings.HasPrefix(flag, "unknown shorthand flag") {
		return usage("%s; %s --help lists the flags", flag, cmd.CommandPath()) // the rest may be a store's URL
	}
	if typo, ok := strings.CutPrefix(err.Error(), "unknown flag: --"); ok {
		hint = didYouMean("--", likeFlags(cmd, typo))
	}
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		if want := numberWanted(invalid.GetFlag()); want != "" {
			return usage("--%s %q: %s; %s --help lists the flags", invalid.GetFlag().Name, invalid.GetValue(), want, cmd.CommandPath())
		}
	}
	return usage("%s%s; %s --help lists the flags", err, hint, cmd.CommandPath())
}

// numberWanted says which number or span a flag takes; empty for a flag that takes
// neither.
func numberWanted(flag *pflag.Flag) string {
	switch {
	case flag.Value.Type() == "int64" && flag.Name != "fence": // units
		return "use a whole number from 0 to 10^15"
	case flag.Value.Type() == "int64", flag.Value.Type() == "int":
		return "use a whole number"
	case flag.Value.Type() == "span":
		return "use a span such as 30s, 8m, 24h or 7d"
	}
	return ""
}

// likeFlags are the command's flags that look like the typo. The comparison is
// the one that cobra makes between commands.
func likeFlags(cmd *cobra.Command, typo string) []string {
	alike := &cobra.Command{SuggestionsMinimumDistance: 2}
	add := func(f *pflag.Flag) {
		alike.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
	}
	cmd.NonInheritedFlags().VisitAll(add)
	cmd.InheritedFlags().VisitAll(add)
	return alike.SuggestionsFor(typo)
}

func didYouMean(prefix string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("; did you mean %s%s?", prefix, strings.Join(names, " or "+prefix))
}

// arguments makes a validator of positional arguments answer wrong usage.
func arguments(validate cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		err, known := validate(cmd, args), ""
		if err == nil {
			return nil
		}
		if len(args) == 0 && cmd.ValidArgsFunction != nil {
			if names, _ := cmd.ValidArgsFunction(cmd, nil, ""); len(names) > 0 {
				known = "; there are " + strings.Join(names, ", ")
			}
		}
		return usage("%s; write %s%s", err, cmd.UseLine(), known)
	}
}
