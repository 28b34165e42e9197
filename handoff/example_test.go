package handoff_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/orbitkit/orbit/handoff"
)

// The scanner hands a file over to the converter, and somebody else gets the receipt.
func Example() {
	ctx := context.Background()
	desk := handoff.NewLocalDesk() // across processes, a store of the host

	// The source puts up a ticket. A repeat, after a crash or a lost answer, is harmless.
	ticket := handoff.Ticket{
		Key: "convert/4711", From: "scanner", To: "converter", Payload: []byte("objects/4711.tif"),
		ReplyTo: "archive", TTL: time.Minute,
	}
	for range 2 {
		offered, err := desk.Offer(ctx, ticket)
		fmt.Println(offered.State, offered.Generation, err)
	}

	// From here on the receiver is responsible, and the source cannot take the work back.
	handle, err := desk.Take(ctx, "convert/4711", "converter")
	fmt.Println(handle.Fence, err)
	fmt.Println(errors.Is(desk.Cancel(ctx, "convert/4711", "scanner"), handoff.ErrTaken))

	// The token, and nothing else, lets it reply.
	err = desk.Reply(ctx, "convert/4711", handle.Token, handoff.Receipt{
		Status: handoff.ReceiptDone, Summary: "3 pages", Artifacts: []string{"objects/4711.pdf"},
	})
	receipt, replyTo, _ := desk.Receipt("convert/4711")
	fmt.Println(err, receipt.Summary, "for", replyTo)

	// Output:
	// offered 1 <nil>
	// offered 1 <nil>
	// 1 <nil>
	// true
	// <nil> 3 pages for archive
}

// Time is judged by the desk's clock, so a test turns it instead of sleeping.
func ExampleWithClock() {
	ctx := context.Background()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	desk := handoff.NewLocalDesk(handoff.WithClock(func() time.Time { return now }))
	ticket := handoff.Ticket{Key: "convert/4711", From: "scanner", To: "converter", ReplyTo: "archive", TTL: time.Minute}

	desk.Offer(ctx, ticket)
	late, _ := desk.Take(ctx, "convert/4711", "converter")
	now = now.Add(time.Minute) // the converter has died, or is slow

	done := handoff.Receipt{Status: handoff.ReceiptDone, Summary: "3 pages"}
	fmt.Println(errors.Is(desk.Reply(ctx, "convert/4711", late.Token, done), handoff.ErrExpired))

	again, _ := desk.Offer(ctx, ticket) // a new generation
	fmt.Println(again.Generation, again.State)
	fmt.Println(errors.Is(desk.Reply(ctx, "convert/4711", late.Token, done), handoff.ErrLeaseLost))

	// Output:
	// true
	// 2 offered
	// true
}

// Before a host trusts its store, it lets several takers race for one ticket.
func ExampleConcurrentTake() {
	ctx := context.Background()
	store := handoff.NewLocalDesk() // the store of the host
	store.Offer(ctx, handoff.Ticket{Key: "probe/1", From: "probe", To: "taker", ReplyTo: "nowhere", TTL: time.Minute})

	takers := []handoff.Agent{"taker", "taker", "taker", "taker"} // one identity: only To may take
	winners, err := handoff.ConcurrentTake(ctx, store, "probe/1", takers, 10*time.Second)
	fmt.Println(winners, err)

	// Output: 1 <nil>
}

// A host judges a snapshot of its store at any time.
func ExampleCheck() {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	snapshot := []handoff.Ticket{
		{Key: "convert/2", To: "converter", TTL: time.Minute, Generation: 1, Deadline: now, State: handoff.StateAccepted, Holder: "converter"},
		{Key: "convert/1", To: "converter", TTL: time.Minute, Generation: 1, Deadline: now.Add(time.Second), State: handoff.StateWithdrawn, Holder: "converter"},
	}
	for _, p := range handoff.Check(snapshot, now) {
		fmt.Printf("%s %s: %s\n", p.Key, p.Code, p.Text)
	}

	// Output:
	// convert/1 holder_mismatch: withdrawn, and has a holder
	// convert/2 overdue_reply: not replied to by its deadline, and not marked expired
}
