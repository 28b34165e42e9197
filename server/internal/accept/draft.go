package accept

import (
	"slices"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/task"
)

// A draft is what one run of the transaction makes of a member, at its own time.
type draft struct {
	refused error // set if the task is not to be; the rest is then of no use

	now         int64
	availableAt int64
	deadlineAt  int64
	startBy     *int64
	task        *orbit.Task // without payload
	stored      []byte      // receipt without payload
	payloadAt   int

	key      []byte // digest of the resource key; empty means none
	lane     int64
	order    int64
	dispatch task.DispatchState
}

func newDraft(m *member, now int64) draft {
	r := &m.Submission.Request
	available, deadline := m.Submission.Times(sqldb.Time(now))
	d := draft{
		now:         now,
		availableAt: sqldb.Micros(available),
		deadlineAt:  sqldb.Micros(deadline),
		key:         []byte{},
		lane:        task.Lane(m.Queue, r.Handler, r.HandlerVersion, r.ConcurrencyKey != ""),
	}
	if r.StartDeadlineAt != nil {
		at := sqldb.Micros(*r.StartDeadlineAt)
		d.startBy = &at
	}
	if r.ConcurrencyKey != "" {
		digest := task.KeyDigest(m.Namespace, r.ConcurrencyKey)
		d.key = digest[:]
	}
	d.order, d.dispatch = task.OrderValue(d.availableAt, r.Priority), task.DispatchReady
	if d.availableAt > now {
		d.order, d.dispatch = d.availableAt, task.DispatchDelayed
	}
	d.task = m.task(available, deadline, sqldb.Time(now))
	d.stored, d.payloadAt = d.task.AppendJSONWithoutPayload(nil)
	return d
}

// task is the task as its receipt shows it.
func (m *member) task(available, deadline, now time.Time) *orbit.Task {
	r := &m.Submission.Request
	t := &orbit.Task{
		ID:              m.id.String(),
		NamespaceID:     m.Namespace.String(),
		QueueID:         r.QueueID,
		State:           orbit.StateWaiting,
		Revision:        1,
		Handler:         r.Handler,
		HandlerVersion:  r.HandlerVersion,
		PayloadVersion:  r.PayloadVersion,
		BusinessKey:     r.BusinessKey,
		ConcurrencyKey:  r.ConcurrencyKey,
		Priority:        r.Priority,
		AvailableAt:     available,
		StartDeadlineAt: r.StartDeadlineAt,
		DeadlineAt:      deadline,
		RecoverySafety:  r.RecoverySafety,
		Retry:           r.Retry,
		CreatedAt:       now,
		UpdatedAt:       now,
	}
	if m.Retry != nil {
		t.RetryOf = m.Retry.Of.String()
	}
	return t
}

func (d *draft) receipt(item *Item) Receipt {
	return Receipt{task: d.stored, payloadAt: d.payloadAt, payload: item.Submission.Request.Payload, fresh: d.task}
}

// expireAt is when a task that still waits has to end.
func (d *draft) expireAt() int64 {
	if d.startBy != nil {
		return min(*d.startBy, d.deadlineAt)
	}
	return d.deadlineAt
}

// dispatchLane is the task's place in the claim index, nil for none.
func (d *draft) dispatchLane() *int64 {
	switch d.dispatch {
	case task.DispatchReady:
		return &d.lane
	case task.DispatchDelayed:
		timer := task.TimerLane
		return &timer
	}
	return nil
}

// appendLane adds the lane that someone should look at now, if it is not there yet.
func (d *draft) appendLane(lanes []int64) []int64 {
	lane := d.dispatchLane()
	if lane == nil || slices.Contains(lanes, *lane) {
		return lanes
	}
	return append(lanes, *lane)
}
