package main

import (
	"github.com/spf13/cobra"

	"github.com/orbitkit/orbit/internal/cli"
)

const long = `orbit-relay forwards the submit requests that business transactions froze in an
outbox to a task server, each under its own key until its answer is known.

The business database is named by ORBIT_RELAY_MYSQL_DSN
(user:password@tcp(host:3306)/database) or by ORBIT_RELAY_DATABASE (mysql:<DSN> or
sqlite:<path>). Its outbox tables are made by: orbit-migrate up --set outbox.

The task server is named by ORBIT_URL, the credential by ORBIT_CREDENTIALS_FILE or
ORBIT_TOKEN. A credentials file may hold the URL, and tells the namespace that the
server has to confirm.

One relay can serve many databases: a configuration file, given with --config, names them
and the task servers that their rows go to. The guide of the outbox describes it.

Operators need the business database only. status says in one line what is wrong; list and
show find rows; requeue, discard, hold, release and purge change something, write an audit
row and take --dry-run.

Several relays may run: each shard is led by one of them, the others stand by.`

func newRoot(of cli.Environment) *cobra.Command {
	env := environment{of, &place{}}
	root := &cobra.Command{
		Use:   "orbit-relay",
		Short: "Forward an outbox to a task server",
		Long:  long,
	}
	root.PersistentFlags().StringVar(&env.place.config, "config", "", "configuration `file` (YAML) with sources and targets, instead of environment and flags")
	root.PersistentFlags().StringVar(&env.place.source, "source", "", "`name` of the source of --config that an operator's command is for (default the only one)")
	root.AddCommand(newRun(env), newOnce(env), newCheck(env), newStatus(env), newDoctor(env), newVerify(env),
		newList(env), newShow(env), newRequeue(env), newDiscard(env), newHold(env), newRelease(env), newPurge(env))
	return root
}
