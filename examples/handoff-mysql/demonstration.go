package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/orbitkit/orbit/handoff"
)

// A demonstration is one run. Its keys are its own, so that it can be repeated and can run
// beside others.
type demonstration struct {
	out   io.Writer
	store *store // of the archive, which receipts are for
	run   string
	a, b  *process
}

func demonstrate(ctx context.Context, address string, out io.Writer) error {
	s, err := open(ctx, address)
	if err != nil {
		return err
	}
	defer s.Close()
	d := &demonstration{out: out, store: s, run: strings.ToLower(rand.Text()[:12])}
	if d.a, err = start(ctx, address); err != nil {
		return err
	}
	defer d.a.kill()
	if d.b, err = start(ctx, address); err != nil {
		return err
	}
	defer d.b.kill()
	for _, part := range []func(context.Context) error{d.offer, d.takeOver, d.settle, d.late, d.contest, d.check} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return d.b.stop()
}

func (d *demonstration) key(name string) handoff.Key {
	return handoff.Key("convert/" + d.run + "/" + name)
}

// ticket is work of the scanner for the converter; the receipt goes to the archive.
func (d *demonstration) ticket(name string, ttl time.Duration) handoff.Ticket {
	return handoff.Ticket{
		Key: d.key(name), From: "scanner", To: "converter", Payload: []byte("objects/" + name + ".tif"), ReplyTo: "archive", TTL: ttl,
	}
}

var done = handoff.Receipt{Status: handoff.ReceiptDone, Summary: "3 pages", Artifacts: []string{"objects/first.pdf"}}

// offer lets process A offer twice, as after a lost answer, and die.
func (d *demonstration) offer(context.Context) error {
	o := order{Act: "offer", Ticket: d.ticket("first", time.Hour)}
	first, err := d.a.do(o)
	if err != nil {
		return err
	}
	again, err := d.a.do(o)
	if err != nil {
		return err
	}
	killed := d.a.kill()
	fmt.Fprintf(d.out, "offer: state=%s generation=%d repeat_is_same=%t source_killed=%t\n", first.State, first.Generation, again == first, killed)
	return wanted(first.Refusal == "" && again == first && killed)
}

// takeOver lets process B take what A has left.
func (d *demonstration) takeOver(context.Context) error {
	t := d.ticket("first", time.Hour)
	stranger, err := d.b.do(order{Act: "take", Ticket: t, Agent: "printer"})
	if err != nil {
		return err
	}
	taken, err := d.b.do(order{Act: "take", Ticket: t, Agent: "converter"})
	if err != nil {
		return err
	}
	again, err := d.b.do(order{Act: "take", Ticket: t, Agent: "converter"})
	if err != nil {
		return err
	}
	back, err := d.b.do(order{Act: "cancel", Ticket: t, Agent: "scanner"})
	if err != nil {
		return err
	}
	fmt.Fprintf(d.out, "take: stranger=%s fence=%d second=%s cancel=%s\n", stranger.Refusal, taken.Generation, again.Refusal, back.Refusal)
	return wanted(taken.Refusal == "" && stranger.Refusal != "" && again.Refusal != "" && back.Refusal != "")
}

// settle lets B reply, and reads the receipt where it was to go. Whoever sent the ticket is
// dead.
func (d *demonstration) settle(ctx context.Context) error {
	o := order{Act: "reply", Ticket: d.ticket("first", 0), Receipt: done}
	first, err := d.b.do(o)
	if err != nil {
		return err
	}
	again, err := d.b.do(o)
	if err != nil {
		return err
	}
	receipt, replyTo, ok, err := d.store.receipt(ctx, o.Ticket.Key)
	if err != nil {
		return err
	}
	fmt.Fprintf(d.out, "reply: receipt_for=%s status=%s summary=%q artifacts=%v second=%s\n", replyTo, receipt.Status, receipt.Summary, receipt.Artifacts, again.Refusal)
	return wanted(first.Refusal == "" && ok && again.Refusal != "")
}

// late lets B miss the deadline: it is refused, and so it is once another has taken the
// next generation.
func (d *demonstration) late(ctx context.Context) error {
	t, err := d.takenBriefly(ctx)
	if err != nil {
		return err
	}
	if err := d.untilOverdue(ctx, t.Key); err != nil {
		return err
	}
	expired, err := d.b.do(order{Act: "reply", Ticket: t, Receipt: done})
	if err != nil {
		return err
	}
	t.From, t.TTL = "scanner after its restart", time.Hour
	next, err := d.store.Offer(ctx, t)
	if err != nil {
		return err
	}
	handle, err := d.store.Take(ctx, t.Key, t.To)
	if err != nil {
		return err
	}
	lost, err := d.b.do(order{Act: "reply", Ticket: t, Receipt: done})
	if err != nil {
		return err
	}
	err = d.store.Reply(ctx, t.Key, handle.Token, done)
	fmt.Fprintf(d.out, "late: reply=%s offered_anew=%s generation_grew=%t late_reply=%s successor_replied=%t\n",
		expired.Refusal, next.State, next.Generation > t.Generation, lost.Refusal, err == nil)
	return errors.Join(err, wanted(expired.Refusal == "expired" && lost.Refusal == "lease_lost" && next.Generation == t.Generation+1))
}

// takenBriefly lets B take a ticket that has little time. On a busy machine even the Take
// may come too late; then the ticket is offered again.
func (d *demonstration) takenBriefly(ctx context.Context) (handoff.Ticket, error) {
	for {
		t, err := d.store.Offer(ctx, d.ticket("late", 300*time.Millisecond))
		if err != nil {
			return t, err
		}
		taken, err := d.b.do(order{Act: "take", Ticket: t, Agent: "converter"})
		if err != nil || taken.Refusal == "" {
			return t, err
		}
		if taken.Refusal != "expired" {
			return t, fmt.Errorf("take: %s", taken.Refusal)
		}
	}
}

// untilOverdue waits until the ticket's time is over by the clock of the database.
func (d *demonstration) untilOverdue(ctx context.Context, key handoff.Key) error {
	for {
		tickets, now, err := d.look(ctx)
		if err != nil {
			return err
		}
		for _, p := range handoff.Check(tickets, now) {
			if p.Key == key && p.Code == handoff.CodeOverdueReply {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// contest holds the store to the judge of the contract.
func (d *demonstration) contest(ctx context.Context) error {
	if _, err := d.store.Offer(ctx, d.ticket("contest", time.Hour)); err != nil {
		return err
	}
	takers := make([]handoff.Agent, 8)
	for i := range takers {
		takers[i] = "converter"
	}
	winners, err := handoff.ConcurrentTake(ctx, d.store, d.key("contest"), takers, limit)
	fmt.Fprintf(d.out, "contest: takers=%d winners=%d\n", len(takers), winners)
	return err
}

// check judges all tickets of this run as they stand.
func (d *demonstration) check(ctx context.Context) error {
	tickets, now, err := d.look(ctx)
	if err != nil {
		return err
	}
	var states []handoff.State
	for _, t := range tickets {
		states = append(states, t.State)
	}
	problems := handoff.Check(tickets, now)
	fmt.Fprintf(d.out, "check: tickets=%d states=%v problems=%d\n", len(tickets), states, len(problems))
	return wanted(len(problems) == 0)
}

// look returns the tickets of this run, sorted by key, and the time by the database.
func (d *demonstration) look(ctx context.Context) (mine []handoff.Ticket, now time.Time, err error) {
	all, err := d.store.Snapshot(ctx)
	if err != nil {
		return nil, now, err
	}
	for _, t := range all {
		if strings.HasPrefix(string(t.Key), "convert/"+d.run+"/") {
			mine = append(mine, t)
		}
	}
	now, err = d.store.now(ctx, d.store.db)
	return mine, now, err
}

// wanted ends the run if what was printed is not as it should be.
func wanted(ok bool) error {
	if !ok {
		return errors.New("the line above is not as it should be")
	}
	return nil
}
