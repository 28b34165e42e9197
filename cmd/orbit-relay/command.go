package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/orbitkit/orbit/internal/version"
)

// An environment is what the program gets from outside.
type environment struct {
	get      func(string) string
	out, err io.Writer
}

// A usageError is one that running again cannot mend.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func exitCode(err error) int {
	var usage usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailure
}

const long = `orbit-relay forwards the submit requests that business transactions froze in an
outbox to a task server, each under its own key until its answer is known.

The business database is named by ORBIT_RELAY_MYSQL_DSN
(user:password@tcp(host:3306)/database) or by ORBIT_RELAY_DATABASE (mysql:<DSN> or
sqlite:<path>). Its outbox tables are made by: orbit-migrate up --set outbox.

The task server is named by ORBIT_URL, the credential by ORBIT_CREDENTIALS_FILE or
ORBIT_TOKEN. A credentials file may hold the URL, and tells the namespace that the
server has to confirm.

Several relays may run: each shard is led by one of them, the others stand by.`

func newRoot(env environment) *cobra.Command {
	root := &cobra.Command{
		Use:           "orbit-relay",
		Short:         "Forward an outbox to a task server",
		Long:          long,
		Version:       version.String(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArguments,
		RunE: func(*cobra.Command, []string) error {
			return usageError{errors.New("say what to do: run, once or status (--help explains)")}
		},
	}
	root.SetVersionTemplate("orbit-relay {{.Version}}\n")
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(newRun(env), newOnce(env), newStatus(env))
	return root
}

func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("unknown command or argument %q (--help lists the commands)", args[0])}
	}
	return nil
}
