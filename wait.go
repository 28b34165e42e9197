package orbit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Bounds of the pause between two looks of WaitTask.
const (
	firstLook = 50 * time.Millisecond
	slowLook  = 2 * time.Second
)

// WaitTask reads a task again and again until it needs nobody but a person any more: it
// returns the task once it is final or in NEEDS_REVIEW. It looks at first every 50 ms and
// in the end every 2 s. A look that finds no server is made again; a refusal ends the
// wait. When ctx ends first, the error wraps its cause and that of the last look, and the
// task is the last one seen, zero if there was none. A caller that waits for a long time
// gives ctx a deadline.
func (c *Client) WaitTask(ctx context.Context, id string) (Task, error) {
	var last Task
	var failed error
	for pause := firstLook; ; pause = min(2*pause, slowLook) {
		switch t, err := c.GetTask(ctx, id); {
		case err == nil && (t.Terminal() || t.State == StateNeedsReview):
			return t, nil
		case err == nil:
			last, failed = t, nil
		case !unknown(err):
			return last, err
		default:
			failed = err
		}
		select {
		case <-ctx.Done():
			return last, stopped(ctx, last, failed)
		case <-time.After(pause - rand.N(pause/5)):
		}
	}
}

// unknown reports whether err tells nothing of the task, so that another look may.
func unknown(err error) bool {
	var none *UnknownOutcomeError
	return errors.As(err, &none)
}

func stopped(ctx context.Context, last Task, failed error) error {
	cause := context.Cause(ctx)
	switch {
	case failed != nil && !errors.Is(failed, cause):
		return fmt.Errorf("orbit: wait for task: %w; last look: %w", cause, failed)
	case last.ID != "":
		return fmt.Errorf("orbit: wait for task: %w; it was %s", cause, last.State)
	}
	return fmt.Errorf("orbit: wait for task: %w", cause)
}
