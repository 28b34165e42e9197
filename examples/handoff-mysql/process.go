package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/orbitkit/orbit/handoff"
)

// An order is what the demonstration tells one of its processes to do.
type order struct {
	Act     string // offer, take, reply or cancel
	Ticket  handoff.Ticket
	Agent   handoff.Agent // who takes or cancels
	Receipt handoff.Receipt
}

// A report is what came of it.
type report struct {
	Refusal    string // empty, or a name of refusals
	Generation uint64 // of the ticket that was offered, or the fence of the handle
	State      handoff.State
}

// refusals are the names under which processes report the sentinels.
var refusals = map[string]error{
	"unknown": handoff.ErrUnknownKey, "taken": handoff.ErrTaken, "expired": handoff.ErrExpired, "not_addressee": handoff.ErrNotAddressee,
	"not_source": handoff.ErrNotSource, "lease_lost": handoff.ErrLeaseLost, "already_settled": handoff.ErrAlreadySettled,
}

// serve is the life of a process: it has a connection to the database of its own, obeys
// orders that come line by line, and keeps the token that it has taken in its memory.
func serve(ctx context.Context, address string, in io.Reader, out io.Writer) error {
	s, err := open(ctx, address)
	if err != nil {
		return err
	}
	defer s.Close()
	orders, reports := json.NewDecoder(in), json.NewEncoder(out)
	var token string
	for {
		var o order
		if err := orders.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		r, err := obey(ctx, s, o, &token)
		for name, sentinel := range refusals {
			if errors.Is(err, sentinel) {
				r.Refusal, err = name, nil
			}
		}
		if err != nil {
			return err
		}
		if err := reports.Encode(r); err != nil {
			return err
		}
	}
}

func obey(ctx context.Context, s *store, o order, token *string) (report, error) {
	switch o.Act {
	case "offer":
		t, err := s.Offer(ctx, o.Ticket)
		return report{Generation: t.Generation, State: t.State}, err
	case "take":
		h, err := s.Take(ctx, o.Ticket.Key, o.Agent)
		if err == nil {
			*token = h.Token
		}
		return report{Generation: h.Fence}, err
	case "reply":
		return report{}, s.Reply(ctx, o.Ticket.Key, *token, o.Receipt)
	case "cancel":
		return report{}, s.Cancel(ctx, o.Ticket.Key, o.Agent)
	}
	return report{}, fmt.Errorf("unknown order %q", o.Act)
}

// A process runs beside the demonstration.
type process struct {
	cmd     *exec.Cmd
	orders  *json.Encoder
	reports *json.Decoder
	in      io.Closer
}

// start starts this program once more. The address goes by the environment, where other
// users of the machine do not see the password.
func start(ctx context.Context, address string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), processVariable+"=1", databaseVariable+"="+address)
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &process{cmd, json.NewEncoder(in), json.NewDecoder(bufio.NewReader(out)), in}, nil
}

// do gives an order and waits for the report.
func (p *process) do(o order) (r report, err error) {
	if err := p.orders.Encode(o); err != nil {
		return r, fmt.Errorf("%s: %w", o.Act, err)
	}
	if err := p.reports.Decode(&r); err != nil {
		return r, fmt.Errorf("%s: the process has not answered: %w", o.Act, err)
	}
	return r, nil
}

// kill ends the process as a crash would, and reports whether it was that which ended it.
func (p *process) kill() bool {
	p.cmd.Process.Kill()
	var exit *exec.ExitError
	return errors.As(p.cmd.Wait(), &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
}

// stop lets the process end, which it does when there are no more orders.
func (p *process) stop() error {
	p.in.Close()
	return p.cmd.Wait()
}
