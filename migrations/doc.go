// Package migrations holds the schema of Orbit's tables as numbered SQL files and the
// runner that applies them.
//
// There are three sets, for three kinds of databases: the task server's own, a business
// database that holds an outbox, and a resource owner's database that holds a guard
// (MIG-015). Each set counts from 000001 and keeps books of its own, so sets may share a
// database. Only the set of the guard is there for PostgreSQL too.
//
// # How a step is applied
//
// MySQL and MariaDB commit at every CREATE and ALTER, so a step of several statements
// cannot be one transaction there. The runner therefore keeps a journal: a statement is
// recorded as begun before it runs and as done after it. Statements that only write rows
// run in one transaction with their record, on SQLite and PostgreSQL every statement does.
// After a crash the next run goes on with the first statement that is not recorded as done;
// for one that was begun it asks the database's catalogue whether its tables, columns and
// indexes are there, and stops with an [UnresolvedError] if that proves nothing.
//
// The SHA-256 of each file is recorded with its step, and a file that was changed after
// it was applied stops the run. One runner works at a time: it holds a lock row under a
// lease that the database's clock judges, so a crashed runner's lock frees itself.
package migrations
