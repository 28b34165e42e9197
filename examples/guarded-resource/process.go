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

	"github.com/orbitkit/orbit/examples/internal/demo"
	"github.com/orbitkit/orbit/resourceguard"
	"github.com/orbitkit/orbit/worker"
)

// A report is what a process tells of its attempt: once before it writes, and once after.
type report struct {
	Attempt            uint64 // number
	Token              uint64
	Wrote              bool
	Stale              bool
	Presented, Highest uint64 // with Stale
	AlreadyApplied     bool   // with Stale
}

// workAsProcess is the life of a process: it runs a worker until its standard input ends.
// Each line of it lets one handler go on.
func workAsProcess(ctx context.Context, d *demo.Demo) error {
	s, err := openStock(ctx, os.Getenv(databaseVariable), d.Credentials.NamespaceID)
	if err != nil {
		return err
	}
	defer s.db.Close()
	let := make(chan struct{})
	h := handler{s, let, json.NewEncoder(os.Stdout)}
	drain, err := d.Start(ctx, worker.Config{
		Queues: []string{os.Getenv(queueVariable)}, Capacity: 1,
		Handlers: map[worker.Handler]worker.HandlerFunc{{Name: "stock.take", Version: "v1"}: worker.Wrap(h.take, s.resource.Fence)},
	})
	if err != nil {
		return err
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		let <- struct{}{}
	}
	return drain()
}

type handler struct {
	stock   *stock
	let     <-chan struct{}
	reports *json.Encoder
}

// take is called once the resource is raised to the attempt's token.
func (h handler) take(ctx context.Context, e worker.Execution) (json.RawMessage, error) {
	var order struct{ Quantity int }
	if err := json.Unmarshal(e.Task.Payload, &order); err != nil {
		return nil, worker.Failed(err)
	}
	r := report{Attempt: e.Task.AttemptNumber, Token: e.ConcurrencyToken}
	if err := h.reports.Encode(r); err != nil {
		return nil, err
	}
	<-h.let
	// A process that was stopped goes on where it was, whatever its context says: like a
	// request that has left, its write can only be refused by the resource.
	result, err := h.stock.take(context.WithoutCancel(ctx), e, order.Quantity)
	r.Wrote = err == nil
	if stale := (*resourceguard.StaleError)(nil); errors.As(err, &stale) {
		r.Stale, r.Presented, r.Highest, r.AlreadyApplied = true, stale.Presented, stale.Highest, stale.AlreadyApplied
	}
	return result, errors.Join(err, h.reports.Encode(r))
}

// A process is a worker beside this program.
type process struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	reports *json.Decoder
}

// start starts this program once more, as a worker.
func start(ctx context.Context, address, queue string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), databaseVariable+"="+address, queueVariable+"="+queue)
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
	return &process{cmd, in, json.NewDecoder(out)}, nil
}

// read waits for the next report.
func (p *process) read() (r report, err error) {
	if err := p.reports.Decode(&r); err != nil {
		return r, fmt.Errorf("a worker process has ended early: %w", err)
	}
	return r, nil
}

// goOn lets the handler of the process write.
func (p *process) goOn() error {
	_, err := io.WriteString(p.in, "go on\n")
	return err
}

// pause stops the process and returns once it stands still.
func (p *process) pause() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return err
		case !status.Stopped():
			return errors.New("the process has ended instead of being stopped")
		default:
			return nil
		}
	}
}

// wake lets a stopped process go on with its write, and returns what became of that.
func (p *process) wake() (report, error) {
	if err := p.goOn(); err != nil {
		return report{}, err
	}
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return report{}, err
	}
	return p.read()
}

// stop lets the process drain its worker and end.
func (p *process) stop() error {
	p.in.Close()
	return p.cmd.Wait()
}

// kill ends the process if it has not ended.
func (p *process) kill() {
	if p.cmd.ProcessState == nil {
		p.cmd.Process.Kill()
		p.cmd.Wait()
	}
}
