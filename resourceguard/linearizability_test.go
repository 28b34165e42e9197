package resourceguard_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/resourceguard"
	"github.com/orbitkit/orbit/resourceguard/guardtest"
)

// A call is one write of a history; contents are told by a number.
type call struct {
	token     uint64
	attempt   string
	operation int
	content   int
	rollBack  bool
}

// An answer is what a call got, without its words.
type answer struct {
	verdict        resourceguard.Verdict
	receipt        string
	refusal        error
	highest        uint64
	alreadyApplied bool
}

// A model is a resource as one after the other would see it.
type model struct {
	highest uint64
	attempt string
	applied [operations]struct {
		content int // 0: not applied
		receipt string
	}
}

const operations = 5

// step returns what the model answers to c, and how it stands then. The receipt is
// that of the call.
func (m model) step(c call, receipt string) (answer, model) {
	before, record := m, m.applied[c.operation]
	known := record.content != 0
	same := known && record.content == c.content
	switch {
	case c.token < m.highest:
		return answer{refusal: resourceguard.ErrStale, highest: m.highest, alreadyApplied: same}, before
	case c.token == m.highest && c.attempt != m.attempt:
		return answer{refusal: resourceguard.ErrTokenCollision}, before
	case known && !same:
		return answer{refusal: resourceguard.ErrOperationConflict}, before
	}
	m.highest, m.attempt = c.token, c.attempt
	a := answer{verdict: resourceguard.Replayed, receipt: record.receipt}
	if !known {
		a = answer{verdict: resourceguard.Applied, receipt: receipt}
		m.applied[c.operation].content, m.applied[c.operation].receipt = c.content, receipt
	}
	if c.rollBack {
		return a, before
	}
	return a, m
}

// TestConcurrentWritesAreLinearizable: whatever runs at the same time, there is an
// order in which one writer after the other would have got the same answers.
func TestConcurrentWritesAreLinearizable(t *testing.T) {
	onEngines(t, func(t *testing.T, db *dbtest.DB) {
		for _, s := range settings(db.Engine) {
			store := openStore(t, db, s, resourceguard.Config{})
			if _, err := store.emptied(t.Context()); err != nil {
				t.Fatal(err)
			}
			history := record(t, store)
			sequential := porcupine.Model{
				Init: func() any { return model{} },
				Step: func(state, input, output any) (bool, any) {
					got := output.(answer)
					want, next := state.(model).step(input.(call), got.receipt)
					return got == want, next
				},
			}
			if !porcupine.CheckOperations(sequential, history) {
				t.Errorf("history under %s is not linearizable: %v", s.name, history)
			}
		}
	})
}

// record lets several clients write to one key under overlapping tokens.
func record(t *testing.T, s *store) []porcupine.Operation {
	const clients, calls = 6, 15
	histories := make([][]porcupine.Operation, clients)
	begin := time.Now()
	var running sync.WaitGroup
	for client := range clients {
		running.Go(func() {
			for n := range calls {
				c := randomCall(n)
				called := time.Since(begin)
				a, err := s.call(t, c, fmt.Sprintf("receipt %d of client %d", n, client))
				if err != nil {
					t.Error(err)
					return
				}
				histories[client] = append(histories[client], porcupine.Operation{
					ClientId: client, Input: c, Output: a, Call: int64(called), Return: int64(time.Since(begin)),
				})
			}
		})
	}
	running.Wait()
	var all []porcupine.Operation
	for _, h := range histories {
		all = append(all, h...)
	}
	return all
}

// randomCall draws tokens that rise with n, so that all verdicts occur.
func randomCall(n int) call {
	c := call{
		token:     uint64(n + 1 + rand.IntN(4)),
		operation: rand.IntN(operations),
		content:   1 + rand.IntN(8)/7,
		rollBack:  rand.IntN(4) == 0,
	}
	c.attempt = fmt.Sprintf("attempt-%d", c.token)
	if rand.IntN(8) == 0 {
		c.attempt = "another"
	}
	return c
}

func (s *store) call(t *testing.T, c call, receipt string) (answer, error) {
	w := resourceguard.Write{
		Namespace: "namespace", Key: "object/42", Token: c.token, Attempt: c.attempt,
		Operation: fmt.Sprintf("operation-%d", c.operation), Content: fmt.Append(nil, c.content),
	}
	end := guardtest.Commit
	if c.rollBack {
		end = guardtest.RollBack
	}
	res, err := s.Apply(t.Context(), w, []byte(receipt), end)
	for errors.Is(err, resourceguard.ErrRetryable) { // see TestContentionEndsInNoDeadlock
		res, err = s.Apply(t.Context(), w, []byte(receipt), end)
	}
	a := answer{verdict: res.Verdict, receipt: string(res.Receipt)}
	var stale *resourceguard.StaleError
	switch {
	case err == nil:
	case errors.As(err, &stale):
		a.refusal, a.highest, a.alreadyApplied = resourceguard.ErrStale, stale.Highest, stale.AlreadyApplied
	case errors.Is(err, resourceguard.ErrTokenCollision):
		a.refusal = resourceguard.ErrTokenCollision
	case errors.Is(err, resourceguard.ErrOperationConflict):
		a.refusal = resourceguard.ErrOperationConflict
	default:
		return answer{}, fmt.Errorf("call %+v: %w", c, err)
	}
	return a, nil
}
