// Package admin makes the rows that nothing but an operator makes: applications,
// namespaces, first queues and credentials. Every change is audited.
package admin
