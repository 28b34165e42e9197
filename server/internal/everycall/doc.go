// Package everycall holds a test only: every transaction of a node is carried out while
// each of its calls to the database fails in turn, in every way in which a call can fail.
package everycall
