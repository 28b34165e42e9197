package resourceguard_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/resourceguard"
	"github.com/orbitkit/orbit/resourceguard/guardtest"
)

// writerVariable is set for the processes that a test starts: it holds the address and
// the engine of the database.
const writerVariable = "ORBIT_GUARD_WRITER"

func TestMain(m *testing.M) {
	if where := os.Getenv(writerVariable); where != "" {
		if err := beWriter(where, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// An order is what a process is told to do with the usual key.
type order struct {
	Kind      string // write, raise or lookup
	Token     uint64
	Attempt   string
	Operation int
	Content   int
	RollBack  bool
	Receipt   string
	Kill      string // where it, or its connection, is killed; never if empty
}

// The places where a writer is killed: itself by SIGKILL, or its connection by the server.
const (
	dieBeforeCommit = "dies before commit"
	dieInCommit     = "dies during commit"
	dieAfterCommit  = "dies after commit"
	cutBeforeCommit = "connection killed before commit"
	cutInCommit     = "connection killed during commit"
)

// A reply is what became of an order.
type reply struct {
	Verdict        resourceguard.Verdict
	Receipt        string
	Refusal        string
	Highest        uint64
	AlreadyApplied bool
	Unknown        bool // nobody knows: it died or was cut off
}

// afterOrder returns the states in which a resource may be after o, if it may have answered
// r at all. What is unknown has happened or has not.
func (m model) afterOrder(o order, r reply) []any {
	switch o.Kind {
	case "lookup":
		record := m.applied[o.Operation]
		if (record.content != 0) != (r.Verdict != 0) || record.receipt != r.Receipt {
			return nil
		}
		return []any{m}
	case "raise":
		return m.afterRaise(o, r)
	}
	c := call{token: o.Token, attempt: o.Attempt, operation: o.Operation, content: o.Content, rollBack: o.RollBack}
	want, next := m.step(c, o.Receipt)
	if r.Unknown {
		return []any{m, next}
	}
	refusal := ""
	if want.refusal != nil {
		refusal = want.refusal.Error()
	}
	if r != (reply{Verdict: want.verdict, Receipt: want.receipt, Refusal: refusal, Highest: want.highest, AlreadyApplied: want.alreadyApplied}) {
		return nil
	}
	return []any{next}
}

// afterRaise is the raise of a reconciler, who has no attempt.
func (m model) afterRaise(o order, r reply) []any {
	before := m
	if o.Token < m.highest {
		if r.Unknown || r.Refusal == resourceguard.ErrStale.Error() && r.Highest == m.highest {
			return []any{m}
		}
		return nil
	}
	if o.Token > m.highest {
		m.highest, m.attempt = o.Token, ""
	}
	switch {
	case r.Unknown:
		return []any{before, m}
	case r.Refusal != "":
		return nil
	}
	return []any{m}
}

// TestWritesAreLinearizableUnderKills: writers are processes that are killed before, during
// and after their commits, or whose connections are; others roll back; a reconciler raises
// and looks up. Whatever that comes to, there is an order in which one after the other
// would have got the same answers (RG-001, RG-003, RG-005, RG-018).
func TestWritesAreLinearizableUnderKills(t *testing.T) {
	const clients, orders = 5, 12
	onEngines(t, func(t *testing.T, db *dbtest.DB) {
		var killed sync.Map
		histories := make([][]porcupine.Operation, clients)
		begin := time.Now()
		var running sync.WaitGroup
		for client := range clients {
			running.Go(func() {
				w := writer{address: db.Address, engine: db.Engine}
				defer w.stop(t)
				for n := range orders {
					o := randomOrder(db.Engine, client, n)
					called := time.Since(begin)
					r, err := w.do(t.Context(), o)
					if err != nil {
						t.Errorf("%+v: %v", o, err)
						return
					}
					returned := int64(time.Since(begin))
					if r.Unknown {
						killed.Store(o.Kill, true)
						returned = math.MaxInt64 // it may still be done
					}
					histories[client] = append(histories[client], porcupine.Operation{ClientId: client, Input: o, Output: r, Call: int64(called), Return: returned})
				}
			})
		}
		running.Wait()
		if t.Failed() {
			return // the history lacks what failed
		}
		for _, kill := range kills(db.Engine) {
			if _, fired := killed.Load(kill); !fired {
				t.Errorf("no writer %s", kill)
			}
		}
		mustBeLinearizable(t, slices.Concat(histories...))
	})
}

func mustBeLinearizable(t *testing.T, history []porcupine.Operation) {
	t.Helper()
	resource := porcupine.NondeterministicModel{
		Init: func() []any { return []any{model{}} },
		Step: func(state, input, output any) []any {
			return state.(model).afterOrder(input.(order), output.(reply))
		},
	}
	if got := porcupine.CheckOperationsTimeout(resource.ToModel(), history, 2*time.Minute); got != porcupine.Ok {
		t.Errorf("history is %s, want it linearizable:", got)
		for _, o := range history {
			t.Errorf("%d-%d client %d: %+v got %+v", o.Call, o.Return, o.ClientId, o.Input, o.Output)
		}
	}
}

func kills(engine string) []string {
	if engine == dbtest.SQLite {
		return []string{dieBeforeCommit, dieInCommit, dieAfterCommit} // it has no connections that a server could end
	}
	return []string{dieBeforeCommit, dieInCommit, dieAfterCommit, cutBeforeCommit, cutInCommit}
}

// randomOrder draws tokens that rise with n. Each client is killed in a way of its own
// twice, as surely as its order writes.
func randomOrder(engine string, client, n int) order {
	c := randomCall(n)
	o := order{
		Kind: "write", Token: c.token, Attempt: c.attempt, Operation: c.operation, Content: c.content, RollBack: c.rollBack,
		Receipt: fmt.Sprintf("receipt %d of client %d", n, client),
	}
	ways := kills(engine)
	switch {
	case n%5 == 4:
		o.Kill, o.RollBack = ways[client%len(ways)], false
	case rand.IntN(8) == 0:
		o.Kind, o.Attempt = "raise", ""
	case rand.IntN(8) == 0:
		o.Kind = "lookup"
	}
	return o
}

// A writer is a process that carries orders out, started anew after it was killed.
type writer struct {
	address, engine string

	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func (w *writer) start(ctx context.Context) (err error) {
	where, err := json.Marshal([2]string{w.address, w.engine})
	if err != nil {
		return err
	}
	w.cmd = exec.CommandContext(ctx, os.Args[0])
	w.cmd.Env = append(os.Environ(), writerVariable+"="+string(where))
	w.cmd.Stderr = os.Stderr
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	w.out = bufio.NewReader(out)
	return w.cmd.Start()
}

// do has an order carried out. A process that was to die must have died of it.
func (w *writer) do(ctx context.Context, o order) (r reply, err error) {
	if w.cmd == nil {
		if err := w.start(ctx); err != nil {
			return r, err
		}
	}
	text, err := json.Marshal(o)
	if err != nil {
		return r, err
	}
	if _, err := w.in.Write(append(text, '\n')); err != nil {
		return r, err
	}
	line, err := w.out.ReadBytes('\n')
	if err == nil {
		return r, json.Unmarshal(line, &r)
	}
	var exit *exec.ExitError
	ended := w.cmd.Wait()
	w.cmd = nil
	if !errors.As(ended, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL || o.Kill == "" {
		return r, fmt.Errorf("writer ended: %w", errors.Join(ended, err))
	}
	return reply{Unknown: true}, nil
}

func (w *writer) stop(t *testing.T) {
	if w.cmd == nil {
		return
	}
	w.in.Close()
	if err := w.cmd.Wait(); err != nil {
		t.Errorf("writer ended: %v", err)
	}
}

// beWriter carries out the orders that come in, in the process of a writer.
func beWriter(where string, in io.Reader, out io.Writer) error {
	var place [2]string
	if err := json.Unmarshal([]byte(where), &place); err != nil {
		return err
	}
	s := &store{address: place[0], engine: place[1], setting: settings(place[1])[0]}
	var err error
	if s.guard, err = resourceguard.New(s.dialect(), guardtest.Authorise, resourceguard.Config{}); err != nil {
		return err
	}
	if s.db, err = openPool(s.address, s.setting); err != nil {
		return err
	}
	s.db.SetMaxIdleConns(-1) // one that was killed too late is used for nothing else
	orders, replies := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var o order
		if err := orders.Decode(&o); errors.Is(err, io.EOF) {
			return s.db.Close()
		} else if err != nil {
			return err
		}
		r, err := s.carryOut(context.Background(), o)
		for errors.Is(err, resourceguard.ErrRetryable) {
			r, err = s.carryOut(context.Background(), o)
		}
		if err != nil {
			return fmt.Errorf("%+v: %w", o, err)
		}
		if err := replies.Encode(r); err != nil {
			return err
		}
	}
}

func (s *store) carryOut(ctx context.Context, o order) (reply, error) {
	w := resourceguard.Write{
		Namespace: "namespace", Key: "object/42", Token: o.Token, Attempt: o.Attempt,
		Operation: fmt.Sprintf("operation-%d", o.Operation), Content: fmt.Append(nil, o.Content),
	}
	switch o.Kind {
	case "lookup":
		r, there, err := s.Lookup(ctx, w.Namespace, w.Key, w.Operation)
		if !there {
			return reply{}, err
		}
		return reply{Verdict: resourceguard.Applied, Receipt: string(r.Receipt)}, err
	case "raise":
		return s.raiseOnly(ctx, resourceguard.Fence{Namespace: w.Namespace, Key: w.Key, Token: w.Token})
	}
	return s.writeAndDie(ctx, o, w)
}

func (s *store) raiseOnly(ctx context.Context, f resourceguard.Fence) (reply, error) {
	tx, err := s.begin(ctx)
	if err != nil {
		return reply{}, err
	}
	defer tx.Rollback()
	r, err := asReply(resourceguard.Result{}, s.guard.Raise(ctx, tx, f))
	if err != nil {
		return reply{}, err
	}
	return r, tx.Commit()
}

// writeAndDie writes, unless the order has it killed. A commit whose connection was killed
// is unknown to it.
func (s *store) writeAndDie(ctx context.Context, o order, w resourceguard.Write) (reply, error) {
	tx, err := s.begin(ctx)
	if err != nil {
		return reply{}, err
	}
	defer tx.Rollback()
	res, verdict := s.guard.Apply(ctx, tx, w, func(ctx context.Context, tx resourceguard.Tx) ([]byte, error) {
		return []byte(o.Receipt), s.append(ctx, tx, w)
	})
	if verdict != nil && !isVerdict(verdict) {
		return reply{}, verdict
	}
	if o.RollBack {
		return asReply(res, verdict)
	}
	var killing sync.WaitGroup
	switch o.Kill {
	case dieBeforeCommit:
		die()
	case dieInCommit:
		go func() {
			time.Sleep(rand.N(300 * time.Microsecond))
			die()
		}()
	case cutBeforeCommit, cutInCommit:
		cut, err := s.killer(ctx, tx)
		if err != nil {
			return reply{}, err
		}
		if o.Kill == cutBeforeCommit {
			cut()
		} else {
			killing.Go(cut)
		}
	}
	err = tx.Commit()
	killing.Wait()
	switch {
	case o.Kill == dieInCommit:
		select {} // it is about to die
	case o.Kill == dieAfterCommit:
		die()
	case o.Kill == cutBeforeCommit && err == nil:
		return reply{}, errors.New("a killed connection has committed")
	case o.Kill == cutBeforeCommit || o.Kill == cutInCommit:
		return reply{Unknown: true}, nil // also if the commit came first: then it is known to have happened, which is one of both
	case err != nil:
		return reply{}, err
	}
	return asReply(res, verdict)
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// killer returns what ends the connection of tx, from another one.
func (s *store) killer(ctx context.Context, tx *sql.Tx) (func(), error) {
	ask, kill := "SELECT CONNECTION_ID()", "KILL CONNECTION %d"
	if s.engine == "postgres" {
		ask, kill = "SELECT pg_backend_pid()", "SELECT pg_terminate_backend(%d, 10000)" // and waits for its end
	}
	var id int64
	if err := tx.QueryRowContext(ctx, ask).Scan(&id); err != nil {
		return nil, err
	}
	other, err := s.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return func() {
		defer other.Close()
		_, _ = other.ExecContext(ctx, fmt.Sprintf(kill, id)) // it may be gone after its commit; before, the commit tells
	}, nil
}

func asReply(res resourceguard.Result, verdict error) (reply, error) {
	r := reply{Verdict: res.Verdict, Receipt: string(res.Receipt)}
	var stale *resourceguard.StaleError
	switch {
	case verdict == nil:
	case errors.As(verdict, &stale):
		r.Refusal, r.Highest, r.AlreadyApplied = resourceguard.ErrStale.Error(), stale.Highest, stale.AlreadyApplied
	case errors.Is(verdict, resourceguard.ErrTokenCollision):
		r.Refusal = resourceguard.ErrTokenCollision.Error()
	case errors.Is(verdict, resourceguard.ErrOperationConflict):
		r.Refusal = resourceguard.ErrOperationConflict.Error()
	default:
		return r, verdict
	}
	return r, nil
}
