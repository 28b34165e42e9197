// Package admin is what an operator does by hand: it makes applications, namespaces, first
// queues and credentials, changes and limits them, shows tasks, keys and histories, and
// settles tasks by the rules of the HTTP interface. Every change is one transaction with
// its audit row. Package doctor, below, examines the database.
package admin
