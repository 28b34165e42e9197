// Package recovery moves what nobody else moves: attempts whose lease has ended, tasks
// that wait past a deadline, delayed tasks whose time has come, and, should one ever be
// left behind, tasks parked behind a key that nobody holds.
//
// Every node runs it. Each step takes a bounded batch (LIC-016) and looks at every row
// again under its lock: the node that comes second finds nothing to do, and a worker that
// was heard of in between wins.
package recovery
