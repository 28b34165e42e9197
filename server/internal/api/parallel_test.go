package api_test

import (
	"testing"

	"github.com/orbitkit/orbit"
)

// ID-009, TEST-002: an equal business_key excludes nothing; two keyless tasks run at the
// same time.
func TestTasksWithOneBusinessKeyRunInParallel(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		h := n.hand()
		var made []orbit.Task
		for _, key := range []string{"a", "b"} {
			made = append(made, n.submit(key, n.body(`"business_key":"conversion-001"`)).want(t, 201, "").taskOf(t))
		}
		for range made {
			g := h.claim(false)
			if g == nil {
				t.Fatal("the second task waits for the first one")
			}
			h.mustStart(g)
		}
		for _, task := range made {
			if got := n.get(task.ID); got.State != orbit.StateRunning {
				t.Errorf("task %s is %s, want both RUNNING", got.ID, got.State)
			}
		}
		n.verify()
	})
}
