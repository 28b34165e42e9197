// Task-query finds tasks again by what the business knows of them: a business key, a time
// span, a state. Lists are ordered by creation time and id, newest first, and are read page
// by page.
//
//	ORBIT_URL=http://127.0.0.1:8080 ORBIT_CREDENTIALS_FILE=/tmp/orbit.json go run ./task-query
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/examples/internal/demo"
)

func main() { demo.Main("task-query", play) }

// orders are the business keys of the tasks, the oldest first. The last but one has a blank
// at its end, which makes it another key.
var orders = []string{"order-1", "order-2", "order-1", "order-1 ", "order-3"}

func play(ctx context.Context, d *demo.Demo) error {
	queue, err := d.Queue(ctx, "invoices")
	if err != nil {
		return err
	}
	tasks, err := submit(ctx, d, queue.ID)
	if err != nil {
		return err
	}
	cancel := orbit.CancelTaskRequest{ExpectedRevision: tasks[4].Revision, Reason: "order withdrawn"}
	if _, err := d.Client.CancelTask(ctx, tasks[4].ID, d.Key("cancel"), cancel); err != nil {
		return err
	}
	second, fourth := tasks[1].CreatedAt, tasks[3].CreatedAt
	for _, q := range []struct {
		name   string
		filter orbit.ListTasksRequest
		want   string
	}{
		{"all", orbit.ListTasksRequest{}, "5 4 3 2 1"},
		{"key", orbit.ListTasksRequest{BusinessKey: "order-1"}, "3 1"}, // exact: no prefix, blanks count
		{"key_with_blank", orbit.ListTasksRequest{BusinessKey: "order-1 "}, "4"},
		{"state", orbit.ListTasksRequest{State: orbit.StateCancelled}, "5"},
		{"from", orbit.ListTasksRequest{CreatedFrom: second}, "5 4 3 2"},                                 // inclusive
		{"before", orbit.ListTasksRequest{CreatedBefore: fourth}, "3 2 1"},                               // exclusive
		{"between", orbit.ListTasksRequest{CreatedFrom: second, CreatedBefore: fourth}, "3 2"},           // [second, fourth)
		{"key_between", orbit.ListTasksRequest{BusinessKey: "order-1", CreatedFrom: second}, "3"},        // all conditions hold
		{"none", orbit.ListTasksRequest{BusinessKey: "order-2", State: orbit.StateSucceeded}, "nothing"}, // an empty list is no error
	} {
		q.filter.QueueID, q.filter.Limit = queue.ID, 2 // two a page, to show that the iterator goes on
		found, err := find(ctx, d, q.filter, tasks)
		if err != nil {
			return fmt.Errorf("%s: %w", q.name, err)
		}
		fmt.Printf("%s: %s\n", q.name, found)
		if err := demo.Same(q.name, found, q.want); err != nil {
			return err
		}
	}
	return cursors(ctx, d, queue.ID)
}

// submit makes one task for each order. The pauses make it certain that no two have the
// same time; where they do, a list orders them by id.
func submit(ctx context.Context, d *demo.Demo, queue string) ([]orbit.Task, error) {
	var tasks []orbit.Task
	for i, order := range orders {
		accepted, err := d.Client.SubmitTask(ctx, d.Key(fmt.Sprint(i)), orbit.SubmitTaskRequest{
			QueueID: queue, Handler: "invoice.print", HandlerVersion: "v1", PayloadVersion: "v1",
			Payload: json.RawMessage(`{}`), BusinessKey: order, TaskTimeoutMS: 60_000,
		})
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, accepted.Task)
		time.Sleep(5 * time.Millisecond)
	}
	return tasks, nil
}

// find returns the numbers of the tasks that the filter finds, in the order of the list.
func find(ctx context.Context, d *demo.Demo, filter orbit.ListTasksRequest, tasks []orbit.Task) (string, error) {
	numbers := make(map[string]string)
	for i, task := range tasks {
		numbers[task.ID] = fmt.Sprint(i + 1)
	}
	var found []string
	for task, err := range d.Client.Tasks(ctx, filter) {
		if err != nil {
			return "", err
		}
		found = append(found, numbers[task.ID])
	}
	if len(found) == 0 {
		return "nothing", nil
	}
	return strings.Join(found, " "), nil
}

// cursors reads page by page by hand, as a web page with a "next" link does. A cursor goes
// with its filters: with others it is refused.
func cursors(ctx context.Context, d *demo.Demo, queue string) error {
	filter := orbit.ListTasksRequest{QueueID: queue, BusinessKey: "order-1", Limit: 1}
	first, err := d.Client.ListTasks(ctx, filter)
	if err != nil {
		return err
	}
	filter.Cursor = first.NextCursor
	last, err := d.Client.ListTasks(ctx, filter)
	if err != nil {
		return err
	}
	filter.BusinessKey = "order-2"
	_, err = d.Client.ListTasks(ctx, filter)
	refusal, err := demo.Refused("a cursor with other filters", err, orbit.CodeInvalidArgument)
	if err != nil {
		return err
	}
	fmt.Printf("pages: first=%d more=%t last=%d more=%t other_filter=%s\n", len(first.Items), first.NextCursor != "", len(last.Items), last.NextCursor != "", refusal.Code)
	return errors.Join(demo.Same("first page has a cursor", first.NextCursor != "", true), demo.Same("last page has a cursor", last.NextCursor != "", false))
}
