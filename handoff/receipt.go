package handoff

// A ReceiptStatus is how the work that was handed over ended.
type ReceiptStatus string

// The statuses.
const (
	ReceiptDone    ReceiptStatus = "done"    // the work is completed
	ReceiptFailed  ReceiptStatus = "failed"  // the receiver tried, and failed
	ReceiptRefused ReceiptStatus = "refused" // the receiver did not try
)

// A Receipt is the conclusion of a hand-over.
type Receipt struct {
	Status    ReceiptStatus
	Summary   string   // the conclusion in a sentence; mandatory if done
	Failure   string   // why not; mandatory if failed or refused, and empty if done
	Artifacts []string // references to what was made, paths or ids; carried unchanged
}
