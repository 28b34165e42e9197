package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// TaskDetails are what an operator may know of a task besides what its readers see.
type TaskDetails struct {
	Application string        `json:"application"`
	Namespace   string        `json:"namespace"`
	Queue       string        `json:"queue"` // its name, as the others
	Timeout     time.Duration `json:"-"`     // of the whole task, from its acceptance
}

const selectDetails = `
SELECT a.name, n.name, q.name, t.task_timeout_ms
FROM task t
JOIN queue q ON q.id = t.queue_id
JOIN namespace n ON n.id = q.namespace_id
JOIN application a ON a.id = n.application_id
WHERE t.id = ?`

// Details reads the details of a task that exists.
func (o *Operator) Details(ctx context.Context, id sqldb.ID) (d TaskDetails, err error) {
	var timeout int64
	err = o.db.Read().QueryRowContext(ctx, selectDetails, id).Scan(&d.Application, &d.Namespace, &d.Queue, &timeout)
	if err != nil {
		return d, fmt.Errorf("read where the task lies: %w", err)
	}
	d.Timeout = time.Duration(timeout) * time.Millisecond
	return d, nil
}
