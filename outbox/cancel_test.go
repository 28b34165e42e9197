package outbox_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
)

// OUT-006, OUT-022: a cancel that can never be accepted is refused by field and rule before
// anything is written.
func TestEnqueueCancelRefusesBadCancelsBeforeAnyStatement(t *testing.T) {
	box, err := outbox.New(outbox.SQLite, outbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		spoil func(*outbox.Cancel)
		field string
	}{
		"no key":           {func(c *outbox.Cancel) { c.Key = "" }, "idempotency_key"},
		"target":           {func(c *outbox.Cancel) { c.Target = "a b" }, "target"},
		"no task":          {func(c *outbox.Cancel) { c.TaskID = "" }, "task_id"},
		"task in capitals": {func(c *outbox.Cancel) { c.TaskID = strings.Repeat("A", 32) }, "task_id"},
		"no revision":      {func(c *outbox.Cancel) { c.Request.ExpectedRevision = 0 }, "expected_revision"},
		"no reason":        {func(c *outbox.Cancel) { c.Request.Reason = " " }, "reason"},
		"long reason":      {func(c *outbox.Cancel) { c.Request.Reason = strings.Repeat("x", orbit.MaxReason+1) }, "reason"},
		"too late":         {func(c *outbox.Cancel) { c.NotAfter = time.Now().Add(-time.Hour) }, "not_after"},
		"trace context":    {func(c *outbox.Cancel) { c.Traceparent = "x" }, "traceparent"},
	}
	for name, test := range tests {
		c := outbox.Cancel{
			Key: "k", Target: "main", TaskID: strings.Repeat("a", 32),
			Request: orbit.CancelTaskRequest{ExpectedRevision: 1, Reason: "withdrawn"},
		}
		test.spoil(&c)
		var invalid *orbit.InvalidArgumentError
		if _, err := box.EnqueueCancel(t.Context(), forbidden{t}, c); !errors.As(err, &invalid) || invalid.Field != test.field {
			t.Errorf("%s: %v, want a mistake in %s", name, err, test.field)
		}
	}
}
