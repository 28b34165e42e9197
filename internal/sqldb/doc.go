// Package sqldb is the thin layer between Orbit's SQL and the engines that run it.
//
// A query is written once, in the words that MySQL, MariaDB and SQLite share; a
// [Dialect] holds the few points where they disagree. PostgreSQL is there for the resource
// guard and its migrations alone, whose queries pass through [Dialect.Bind].
//
// Transactions run through [DB.Tx], which reruns the whole function after a deadlock and
// never mistakes a lost answer to COMMIT for a failure. Times are microseconds UTC from
// the database's own clock, so no node's clock decides anything.
//
// The package imports no driver: errors are told apart by the codes that drivers
// expose, and whoever opens a database chooses the driver.
package sqldb
