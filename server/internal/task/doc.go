// Package task holds what every part of the server knows of a task: its states, how it
// waits to be dispatched, and the events that record its changes.
package task
