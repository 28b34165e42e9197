package main

import (
	"context"
	"os/user"

	"github.com/spf13/cobra"

	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/internal/drivers"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server"
)

// The versions of the server's schema that this program writes to (MIG-008).
const minSchema, maxSchema = 15, 15

const long = `orbit-admin is for the people who run a task server. It works on the server's database,
which needs no server to run; it must have been migrated by orbit-migrate.

A token is written to the credentials file and nowhere else: not to the terminal, not to a
log, and the database holds only its SHA-256. Every change is audited with the name of the
user who runs the program and, where one is given, the reason.

Refused by the state of things (exit code 1) is what exists already, has been revoked, is at
another revision or in another state; a name or id that does not exist is a mistake (2).`

// variables is what each --help says of the environment.
const variables = `ORBIT_MYSQL_DSN  user:password@tcp(host:3306)/database of the task server
ORBIT_DATABASE   instead of it: mysql:<DSN> or sqlite:<path>`

func newRoot(env cli.Environment) *cobra.Command {
	root := &cobra.Command{Use: "orbit-admin", Short: "Run a task server: credentials, queues, tasks, health", Long: long}
	root.AddCommand(newBootstrap(env), newCredential(env), newApplication(env), newQueue(env),
		newTasks(env), newAttempts(env), newEvidence(env), newKeys(env), newTokens(env), newAudit(env), newRetention(env),
		newDoctor(env), newVerify(env))
	return root
}

// withDatabase opens the database that the environment names and runs f on it.
func withDatabase(ctx context.Context, env cli.Environment, f func(*sqldb.DB) error) error {
	address, err := drivers.FromEnvironment(env.Get, "ORBIT_DATABASE", "ORBIT_MYSQL_DSN")
	if err != nil {
		return cli.Usage(err)
	}
	db, err := drivers.OpenExisting(ctx, address)
	if err != nil {
		return cli.Usage(err)
	}
	defer db.Close()
	if err := migrations.Check(ctx, db, migrations.Server, minSchema, maxSchema); err != nil {
		return cli.Usage(err)
	}
	return f(db)
}

// withOperator runs f for an operator on the database that the environment names.
func withOperator(ctx context.Context, env cli.Environment, f func(*server.Operator) error) error {
	return withDatabase(ctx, env, func(db *sqldb.DB) error { return f(server.NewOperator(db, actor())) })
}

// actor is who runs the program, for the audit.
func actor() string {
	const most = 128 // bytes of the column
	name := "orbit-admin"
	if u, err := user.Current(); err == nil {
		name += " " + u.Username
	}
	return name[:min(len(name), most)]
}
