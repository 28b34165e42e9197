// Package session serves the connections of worker processes: the worker protocol
// orbit.worker.v1 over WebSocket, and the one claim loop of a node that feeds them.
//
// A connection authenticates like a request, registers once by hello, and then gives
// credit: how many assignments it takes now. The server never assigns more than that, nor
// more than the registered capacity less what the process holds. The claim loop looks
// only into lanes that somebody connected takes now and that were woken, found or not yet
// looked at: an idle connection costs no query. Several nodes share one database; what
// was accepted elsewhere is found by a poll that gets rarer while it finds nothing.
//
// What connections ask for is gathered per kind while the last transaction of that kind
// commits, and written together (a natural batch: no timer, no added wait). Renewals have
// a lane of their own, so nothing is in front of them. Every message may be repeated, here
// or on another node: answers come from the database, never from memory.
//
// Closing a connection releases nothing: the lease decides (WRK-021).
package session
