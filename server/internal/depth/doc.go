// Package depth tells how much waits in which queue, and for how long, at a cost that does
// not grow with what is there.
//
// Nothing is counted to its end: a count stops at a cap, so a number that equals the cap
// means that many or more. Each read is a range of an index that holds no finished task,
// or of the index by queue and state; finished tasks are not looked at. A reading takes
// place in the background, at most every Interval and for a tenth of the time at most,
// however many ask for the last one.
package depth
