// Package faults has no code of its own. Its tests run server nodes and workers as
// processes of their own on real databases and let happen to them what happens in
// production: kills, pauses, dead links, lost answers, databases that go away. Each test
// fails if its fault did not fire, and ends with the checks of orbit-admin verify on the
// live database.
//
// The processes are the test binary itself, started again (see TestMain): so they have the
// race detector where the test has it, and leases shorter than a program allows.
//
// ORBIT_FAULT_SECONDS makes the tests that go on for a while go on for so long; make soak
// sets it.
package faults
