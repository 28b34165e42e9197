package relay

import (
	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
)

// A verdict is what an answer means for the row that was sent. The zero verdict is the
// safe one: whatever the table does not list is unknown.
type verdict int

const (
	unknown         verdict = iota // may have been accepted: same bytes, same key, later
	accepted                       // a task exists
	mismatch                       // a task exists, for something else than was sent
	queueFull                      // not accepted, the queue has no room
	applicationFull                // not accepted, no queue of the target has room
	throttled                      // turned away on the way to Orbit, with the wish to wait
	refused                        // never will be accepted
	conflict                       // the key stands for other content
	needsPerson                    // right, scope or state is missing
	targetWrong                    // says nothing about the row: the target is misconfigured
	foreign                        // a 4xx that Orbit does not stand behind
)

// outcome is the class of an answer, for those who look on.
func (v verdict) outcome(a orbit.Answer) outbox.Outcome {
	switch v {
	case accepted:
		return outbox.OutcomeAccepted
	case mismatch:
		return outbox.OutcomeMismatch
	case refused:
		return outbox.OutcomeRefused
	case conflict:
		return outbox.OutcomeConflict
	case needsPerson:
		return outbox.OutcomeNeedsPerson
	}
	if a.Err != nil && a.Status < 500 && v != foreign { // Orbit's own word that there is no task of this send
		return outbox.OutcomeNotAccepted
	}
	return outbox.OutcomeUnknown
}

// refusals are the error answers that count, with Orbit's own envelope (REL-003…010).
var refusals = map[string]verdict{
	orbit.CodeInvalidArgument:      refused,
	orbit.CodeBodyTooLarge:         refused,
	orbit.CodeUnsupportedMediaType: refused,
	orbit.CodeIdempotencyConflict:  conflict,
	orbit.CodePermissionDenied:     needsPerson,
	orbit.CodeNotFound:             needsPerson,
	orbit.CodeStateConflict:        needsPerson,
	orbit.CodeQueueFull:            queueFull,
	orbit.CodeApplicationFull:      applicationFull,
}

// classify is the table of answers to one row, sent alone or as an item of a batch.
func classify(r *outbox.Row, a orbit.Answer) verdict {
	switch {
	case a.Accepted != nil:
		return classifyReceipt(r, a)
	case a.Status >= 300 && a.Status < 400, a.Status == 401:
		return targetWrong
	case a.Status < 400, a.Status >= 500, a.Status == 408, a.Status == 425:
		return unknown
	}
	return classifyRefusal(a)
}

// classifyReceipt holds what the receipt echoes against what was sent (REL-011).
func classifyReceipt(r *outbox.Row, a orbit.Answer) verdict {
	task := &a.Accepted.Task
	if r.Operation == outbox.OperationCancel {
		return classifyCancel(r, a)
	}
	if task.QueueID != r.QueueID || task.Handler != r.Handler {
		return mismatch
	}
	algorithm, digest, err := orbit.ParseDigest(a.ContentDigest)
	switch {
	case err != nil:
		return unknown
	case algorithm == r.Algorithm && digest != r.Digest:
		return mismatch
	}
	return accepted // digests of different algorithms cannot be compared
}

// classifyCancel holds the receipt of a cancel against the row. Its answer needs no digest:
// the server knows the command by its task and key.
func classifyCancel(r *outbox.Row, a orbit.Answer) verdict {
	algorithm, digest, err := orbit.ParseDigest(a.ContentDigest)
	switch {
	case a.Accepted.Task.ID != r.CancelTaskID:
		return mismatch
	case err == nil && algorithm == r.Algorithm && digest != r.Digest:
		return mismatch
	}
	return accepted
}

// classifyRefusal judges the 4xx that are left. 405 is no answer to a submit, also in
// Orbit's envelope.
func classifyRefusal(a orbit.Answer) verdict {
	if a.Err != nil && a.Status != 405 {
		return refusals[a.Err.Code]
	}
	if a.Status == 429 {
		return throttled
	}
	return foreign
}

// A batchVerdict is what the answer to a batch as a whole means. No row is settled by
// anything but its own item (REL-027).
type batchVerdict int

const (
	batchUnknown   batchVerdict = iota // any of the rows may have been accepted
	batchItems                         // each row has its own answer
	batchApart                         // send the rows again one by one
	batchThrottled                     // wait, then send again
	batchWrong                         // the target is misconfigured
)

// classifyBatch is the table of answers to a batch as a whole.
func classifyBatch(b orbit.BatchAnswer) batchVerdict {
	switch s := b.Status; {
	case b.Items != nil:
		return batchItems
	case s == 400, s == 413, s == 415:
		return batchApart
	case s == 429:
		return batchThrottled
	case s < 300, s >= 500, s == 408, s == 425:
		return batchUnknown
	}
	return batchWrong // 3xx and every other 4xx
}

// allForbidden reports whether every item was refused with 403 although the rows belong
// to several queues: then it is the credential and not the rows (REL-027).
func allForbidden(rows []*entry, items []orbit.Answer) bool {
	queues := map[string]struct{}{}
	for i, e := range rows {
		if items[i].Status != 403 || items[i].Err == nil {
			return false
		}
		queues[e.row.QueueID] = struct{}{}
	}
	return len(queues) >= 2
}
