package dispatch_test

import (
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/server/internal/task"
)

// A row under the digest of a task's key that is another key's, as two keys with one digest
// would have it: a claim compares the keys themselves.
func TestKeysWithOneDigestAreNotTakenForOne(t *testing.T) { // KEY-015, TEST-028
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		other := w.NewNamespace("other")
		x := spec{Queue: w.NewQueue("q"), Key: "object", Delay: -time.Hour}
		id := w.Submit(x)
		behind := spec{Queue: x.Queue, Key: "free"}
		digest := task.KeyDigest(w.Namespace, x.Key)
		set := func(namespace any, key string) {
			w.Exec("UPDATE resource SET namespace_id = ?, resource_key = ? WHERE digest = ?", namespace, []byte(key), digest[:])
		}
		taker := w.Taker(10, x.Lane())
		for _, wrong := range []struct {
			namespace any
			key       string
		}{{w.Namespace, "Object"}, {w.Namespace, "object "}, {w.Namespace, "objec"}, {other, "object"}} {
			set(wrong.namespace, wrong.key)
			next := w.Submit(behind) // it is not hidden by the task that cannot be given away
			g := claimOne(t, n, taker, x.Lane())
			if g.Task != next {
				t.Errorf("a task of key %q got the permit of key %q", x.Key, wrong.key)
			}
			mustStart(t, n, refOf(taker, g))
			finish(t, n, success(refOf(taker, g)))
			if version, holder := w.Key(w.Namespace, x.Key); version != 0 || !holder.IsZero() {
				t.Errorf("the row of key %q has version %d and holder %v, want it untouched", wrong.key, version, holder)
			}
			if s := w.Task(id); s.State != "WAITING" || s.Attempts != 0 {
				t.Errorf("task = %+v, want it untouched", s)
			}
		}
		set(w.Namespace, x.Key)
		if g := claimOne(t, n, taker, x.Lane()); g.Task != id || g.Token != 1 {
			t.Errorf("with its own row the claim gave %+v, want the task with token 1", g)
		}
	})
}

// A resource counts its own tokens: those of another say nothing of it, and neither does a
// task's epoch, which falls from one task to the next while the token rises.
func TestTokensAreOfTheResourceAndEpochsOfTheTask(t *testing.T) { // TOK-009, TOK-011, AMB-008, TEST-028
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		x := spec{Queue: w.NewQueue("a"), Key: "worn", MaxAttempts: 3, Idempotent: true}
		later, fresh := x, x
		later.Queue, fresh.Queue, fresh.Key = w.NewQueue("b"), w.NewQueue("c"), "new"
		type seen struct{ epoch, token uint64 }
		attempt := func(x spec, outcome task.Outcome) seen {
			taker := w.Taker(1, x.Lane())
			g := claimOne(t, n, taker, x.Lane())
			ref := refOf(taker, g)
			mustStart(t, n, ref)
			f := success(ref)
			if f.Outcome = outcome; outcome != task.OutcomeSucceeded {
				f.Result, f.Retryable = nil, true
			}
			if got := finish(t, n, f); got.Status != "recorded" {
				t.Fatalf("finish = %+v", got)
			}
			w.Exec("UPDATE task SET dispatch_state = 1, dispatch_lane = lane, available_at = ? WHERE dispatch_state = 2", w.Now()-1)
			return seen{uint64(g.Epoch), g.Token}
		}
		w.Submit(x)
		w.Submit(fresh)
		got := []seen{attempt(x, task.OutcomeFailed), attempt(x, task.OutcomeFailed), attempt(x, task.OutcomeSucceeded)}
		w.Submit(later)
		got = append(got, attempt(later, task.OutcomeSucceeded))
		for i := 1; i < len(got); i++ {
			if got[i].token <= got[i-1].token {
				t.Errorf("attempts of one resource = %+v, want rising tokens", got)
			}
		}
		if got[2].epoch != 3 || got[3].epoch != 1 {
			t.Errorf("attempts = %+v, want epoch 3 of one task and then 1 of the next", got)
		}
		if g := attempt(fresh, task.OutcomeSucceeded); g.token != 1 || g.epoch != 1 {
			t.Errorf("first attempt of another resource = %+v, want token 1 whatever the others have reached", g)
		}
	})
}
