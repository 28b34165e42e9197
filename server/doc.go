// Package server is a task server node: it accepts tasks over HTTP, gives them to workers
// over WebSocket, and recovers what was lost.
//
// Nodes keep no state of their own; any number of them may run on one database, which is
// the only truth. A node that stops or is killed loses nothing: what it accepted is
// committed, and what its workers hold is decided by leases that the database's clock
// ends.
//
// The parts live in packages of their own: api (the HTTP interface), accept (group commit
// of submits), session (worker connections), dispatch (claims and results), recovery
// (sweepers), auth and admin (credentials). This package joins them; cmd/orbit and
// cmd/orbit-admin are its users.
package server
