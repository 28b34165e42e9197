// Package query reads what the server stores: tasks and where they come from, attempts,
// evidence, queues and the application. The HTTP interface reads for a credential, an
// operator reads everything. Lists are read by keyset: the cost of a page depends neither
// on how many pages lie before it nor on how many rows there are (LIST-010).
package query
