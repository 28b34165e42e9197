package orbit

import (
	"context"
	"iter"
	"net/url"
	"strconv"
	"time"
)

// ListTasksRequest asks for one page of the tasks of a queue, newest first.
type ListTasksRequest struct {
	QueueID       string    // required
	State         string    // one of the State constants; empty means any
	BusinessKey   string    // exact, blanks included; empty means any
	CreatedFrom   time.Time // tasks created then or later; zero means no bound
	CreatedBefore time.Time // tasks created before; zero means no bound
	Limit         int       // 1 to 100; 0 means the server's default of 20
	Cursor        string    // NextCursor of the page before, with the same filters; empty for the first
}

// A TaskPage is one page of task summaries: payload, result, retry policy and what else
// is only in a task's detail are zero.
type TaskPage struct {
	Items      []Task `json:"items"`
	NextCursor string `json:"next_cursor,omitempty"` // empty on the last page
}

// ListTasks reads one page, ordered by creation time and id, both descending. Pages are no
// snapshot: tasks may change between them.
func (c *Client) ListTasks(ctx context.Context, r ListTasksRequest) (TaskPage, error) {
	if !ValidID(r.QueueID) {
		return TaskPage{}, invalid("queue_id", "must be 32 lower-case hexadecimal characters")
	}
	q := pageQuery(r.Limit, r.Cursor)
	q.Set("queue_id", r.QueueID)
	set(q, "state", r.State)
	set(q, "business_key", r.BusinessKey)
	if !r.CreatedFrom.IsZero() {
		q.Set("created_from", FormatTime(r.CreatedFrom))
	}
	if !r.CreatedBefore.IsZero() {
		q.Set("created_before", FormatTime(r.CreatedBefore))
	}
	var page TaskPage
	return page, c.get(ctx, "list tasks", submitPath+"?"+q.Encode(), maxBatchAnswer, &page)
}

// Tasks reads all pages from r.Cursor on, as the loop asks for them. It ends with the
// first error.
func (c *Client) Tasks(ctx context.Context, r ListTasksRequest) iter.Seq2[Task, error] {
	return pages(r.Cursor, func(cursor string) ([]Task, string, error) {
		r.Cursor = cursor
		page, err := c.ListTasks(ctx, r)
		return page.Items, page.NextCursor, err
	})
}

// pages walks a list whose pages read returns with the cursor of the next.
func pages[T any](cursor string, read func(cursor string) ([]T, string, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for next := cursor; ; {
			items, after, err := read(next)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if next = after; next == "" {
				return
			}
		}
	}
}

func pageQuery(limit int, cursor string) url.Values {
	q := url.Values{}
	if limit != 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	set(q, "cursor", cursor)
	return q
}

func set(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}

// withQuery appends a query that may be empty.
func withQuery(path string, q url.Values) string {
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}
