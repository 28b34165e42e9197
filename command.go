package orbit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/orbitkit/orbit/internal/strictjson"
)

// A TaskReceipt is the answer to a command on a task: the task as the command left it. For
// a repeat it is the first receipt, whatever has become of the task since.
type TaskReceipt struct {
	Task         Task
	Deduplicated bool // the key was known: this is the receipt of an earlier command
	RequestID    string
}

// MaxReason bounds the reason of a command, in Unicode characters (LIMIT-013).
const MaxReason = 1024

// validReason holds the words of a person to their rules (CAN-006, AMB-070).
func validReason(field, text string) error {
	if err := validText(field, text, MaxReason); err != nil {
		return err
	}
	switch {
	case strings.TrimSpace(text) == "":
		return invalid(field, "is required and must not be blank")
	case strings.Contains(text, "\x00"):
		return invalid(field, "must not contain NUL")
	}
	return nil
}

func validRevision(revision uint64) error {
	if revision == 0 {
		return invalid("expected_revision", "must not be zero")
	}
	return nil
}

// decode reads the body of a command.
func decode(body []byte, v any) error {
	if len(body) > MaxBodyBytes {
		return invalid("body", "must be at most 524288 bytes")
	}
	if err := strictjson.Decode(body, v); err != nil {
		return invalidDocument(err, "body")
	}
	return nil
}

// A command is a write on one thing, ready to be sent.
type command struct {
	act     string
	method  string
	path    string
	key     string
	body    []byte
	success []int // HTTP statuses that mean it was done
}

// run sends a command once. Its errors are those of [Client.SubmitTask].
func (c *Client) run(ctx context.Context, cmd command) (reply, jsontext.Value, error) {
	if err := ValidateIdempotencyKey(cmd.key); err != nil {
		return reply{}, nil, err
	}
	req, err := c.newRequest(ctx, cmd.method, cmd.path, cmd.body)
	if err != nil {
		return reply{}, nil, fmt.Errorf("orbit: %s: %w", cmd.act, err)
	}
	req.Header.Set(HeaderIdempotencyKey, cmd.key)
	r, err := c.exchange(req, maxSingleAnswer)
	if err != nil {
		return reply{}, nil, &UnknownOutcomeError{Act: cmd.act, Err: err}
	}
	data, refused, unreadable := r.open()
	if data == nil {
		return r, nil, failed(cmd.act, r.status, refused, unreadable)
	}
	for _, status := range cmd.success {
		if r.status == status {
			return r, data, nil
		}
	}
	return r, nil, &UnknownOutcomeError{Act: cmd.act, Status: r.status, Err: errors.New("HTTP status is not one of this command")}
}

// runOnTask sends a command that answers with the task that it acted on.
func (c *Client) runOnTask(ctx context.Context, taskID string, cmd command) (TaskReceipt, error) {
	if !ValidID(taskID) {
		return TaskReceipt{}, invalid("task_id", "must be 32 lower-case hexadecimal characters")
	}
	cmd.method, cmd.success = http.MethodPost, []int{http.StatusOK, http.StatusAccepted}
	r, data, err := c.run(ctx, cmd)
	if err != nil {
		return TaskReceipt{}, err
	}
	var w struct {
		Deduplicated bool     `json:"deduplicated"`
		Task         wireTask `json:"task"`
	}
	if err := jsonv2.Unmarshal(data, &w); err != nil || w.Task.ID != taskID {
		return TaskReceipt{}, &UnknownOutcomeError{Act: cmd.act, Status: r.status, Err: errors.New("answer is not a receipt for this task")}
	}
	return TaskReceipt{Task: w.Task.task(), Deduplicated: w.Deduplicated, RequestID: r.requestID}, nil
}
