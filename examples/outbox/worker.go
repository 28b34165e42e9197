package main

import (
	"context"
	"encoding/json"

	"github.com/orbitkit/orbit/worker"
)

const shipHandler = "order.ship"

// A shipper is the code of a worker. Here it writes into the service's own database; with a
// resource of its own it would use package resourceguard, as the quickstart does.
type shipper struct{ db *database }

// ship notes the shipment. The order's id is the primary key: work that is done a second time
// after a crash is one shipment all the same.
func (s *shipper) ship(ctx context.Context, e worker.Execution) (json.RawMessage, error) {
	var o order
	if err := json.Unmarshal(e.Task.Payload, &o); err != nil {
		return nil, worker.Failed(err)
	}
	const note = "REPLACE INTO shipments (order_id, task_id) VALUES (?, ?)"
	if _, err := s.db.ExecContext(ctx, note, o.ID, e.Task.ID); err != nil {
		return nil, err
	}
	return json.RawMessage(`{"shipped":true}`), nil
}
