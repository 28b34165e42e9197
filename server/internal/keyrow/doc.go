// Package keyrow makes the rows of resource keys, at the floor of their namespace, and
// raises that floor.
//
// The floor is the version at which a new row begins. There is one for all namespaces and
// there may be one for each; the higher one counts. Whoever makes a row holds the row of
// the common floor in share mode until the key's row is committed, and whoever raises a
// floor, of whichever scope, first takes that row for itself. So a row is either committed
// before the floor is raised, and then seen by who raises rows afterwards, or begins at
// the raised floor: none stays below (TOK-018). Floors are locked before keys (LIC-014).
package keyrow
