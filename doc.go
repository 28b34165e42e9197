// Package orbit is what every party of an Orbit installation shares: the contract
// types of the task interface, the rules that a submit request has to meet, the
// digest that tells whether two requests are the same, and an HTTP client.
//
// The promise that it serves: one business commit becomes exactly one accepted
// task, however often the request is sent. A request is frozen once
// ([SubmitTaskRequest.Freeze]) and sent under one idempotency key until the answer
// is known. The server judges by the same rules and the same digest
// ([ParseSubmission]), so what froze is accepted as it is, and a repeat gets the
// first receipt.
//
// An accepted task means that the database has taken the command, not that the
// business work is done.
//
// # Unknown outcomes
//
// After a timeout, a broken connection or a 503 nobody may conclude that a submit
// did not happen. The client then returns an [*UnknownOutcomeError]; the caller
// keeps key and content and repeats. The client itself never repeats a write and
// never makes up or changes a key.
//
// # Numbers
//
// Payload and result are [encoding/json.RawMessage]: their digits are kept as
// received. Do not decode them into any or float64 first, where 9007199254740993
// turns into 9007199254740992. Use exact struct types, or strings where the
// business agrees on it.
//
// The limits in this package protect the interface. They are no statement about
// throughput or capacity.
package orbit
