// Package cli runs a program of Orbit's: a tree of commands with signals, exit codes and
// errors of one line. What the commands do is their own.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/orbitkit/orbit/internal/version"
)

// Exit codes: a mistake in flags, environment, names, address, database or schema is the
// caller's to mend; anything else is a refusal by the state of things, or a failure that may
// go away by itself.
const (
	ExitFailure = 1
	ExitUsage   = 2
)

// An Environment is what a program gets from outside.
type Environment struct {
	Get      func(name string) string // reads an environment variable
	Out, Err io.Writer
}

// A Program is one binary.
type Program struct {
	// Root makes the tree of commands. Run completes it: version, errors of one line,
	// and, for a command that only has others below it, the error that names them.
	Root func(Environment) *cobra.Command
	// Mistakes tells which errors, besides those of Usage, are the caller's to mend.
	// Default none.
	Mistakes func(error) bool
	// Variables is what the help of every command says of the environment, in one line or
	// several. Default nothing.
	Variables string
}

// exitCodes is what the help of every command says.
const exitCodes = `Exit codes:
  0 done; 1 refused by the state of things, or failed; 2 a mistake in flags, environment,
  names or database
`

// Main runs the program with the arguments, environment and streams of the process and
// exits. SIGINT and SIGTERM cancel the command's context; a second signal ends the
// process at once.
func (p Program) Main() {
	ctx := untilSignal()
	os.Exit(p.Run(ctx, os.Args[1:], Environment{Get: os.Getenv, Out: os.Stdout, Err: os.Stderr}))
}

// untilSignal returns a context that the first signal cancels. By then the next one has
// its own effect again: whoever sees the program stop can end it at once.
func untilSignal() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() { // lives as long as the process
		<-signals
		signal.Stop(signals)
		cancel()
	}()
	return ctx
}

// Run runs the command that args name and returns the exit code. An error is written to
// env.Err, once, after the program's name.
func (p Program) Run(ctx context.Context, args []string, env Environment) int {
	root := p.Root(env)
	p.prepare(root)
	root.SetArgs(args)
	root.SetOut(env.Out)
	root.SetErr(env.Err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(env.Err, "%s: %v\n", root.Name(), err)
	if IsUsage(err) || p.Mistakes != nil && p.Mistakes(err) {
		return ExitUsage
	}
	return ExitFailure
}

func (p Program) prepare(root *cobra.Command) {
	root.Version = version.String()
	root.SetVersionTemplate(root.Name() + " {{.Version}}\n")
	root.SilenceUsage, root.SilenceErrors = true, true
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return Usage(flagError(err)) })
	complete(root)
	notes := "\n" + exitCodes
	if p.Variables != "" {
		notes = "\nEnvironment:\n  " + strings.ReplaceAll(strings.TrimSpace(p.Variables), "\n", "\n  ") + "\n" + notes
	}
	root.SetHelpTemplate(root.HelpTemplate() + notes)
}

// complete gives each command that takes no arguments the error for one, and each that
// does nothing by itself the error that says what it leads to.
func complete(c *cobra.Command) {
	if c.Args == nil {
		c.Args = noArguments
	}
	if !c.Runnable() {
		c.RunE = func(c *cobra.Command, _ []string) error {
			return Usage(fmt.Errorf("say what to do: %s (--help explains)", alternatives(c)))
		}
	}
	for _, below := range c.Commands() {
		complete(below)
	}
}

func alternatives(c *cobra.Command) string {
	var names []string
	for _, below := range c.Commands() {
		if below.IsAvailableCommand() {
			names = append(names, below.Name())
		}
	}
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// A usageError is one that running again cannot mend.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Usage marks err as a mistake of the caller: the program exits with ExitUsage.
func Usage(err error) error { return usageError{err} }

// IsUsage reports whether err is marked so.
func IsUsage(err error) bool {
	var mistake usageError
	return errors.As(err, &mistake)
}

func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usage(fmt.Errorf("unknown command or argument %q (--help lists the commands)", args[0]))
	}
	return nil
}

// OneArgument lets a command take exactly one argument; what says which, such as "the id
// of one task".
func OneArgument(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != 1 {
			return Usage(fmt.Errorf("%s needs %s", c.Name(), what))
		}
		return nil
	}
}
