package main

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/orbitkit/orbit"
)

// A floorAcceptance inserts what a submit makes: an identity with its receipt, a task, an
// event and an audit row each, 100 in one transaction, one statement a table. It has none
// of what makes acceptance safe: no HTTP, no strict reading, no digest of content, no
// look-up of the identity, no quota, no clock of the database.
type floorAcceptance struct {
	db                           *sql.DB
	namespace, queue, credential []byte
	bodies                       [][]byte // requests
	receipts                     [][]byte
}

func newFloorAcceptance(db *sql.DB, creds orbit.Credentials) (*floorAcceptance, error) {
	f := &floorAcceptance{db: db, credential: make([]byte, 16)}
	var err error
	if f.namespace, err = hex.DecodeString(creds.NamespaceID); err != nil {
		return nil, err
	}
	if f.queue, err = hex.DecodeString(creds.QueueID); err != nil {
		return nil, err
	}
	at := time.Now().UTC()
	for i := range 100 {
		r := request(i)
		f.bodies = append(f.bodies, r.Payload)
		task := orbit.Task{
			ID: creds.QueueID, NamespaceID: creds.NamespaceID, QueueID: creds.QueueID, State: orbit.StateWaiting, Revision: 1,
			Handler: r.Handler, HandlerVersion: r.HandlerVersion, PayloadVersion: r.PayloadVersion, AvailableAt: at, DeadlineAt: at,
			RecoverySafety: orbit.RecoveryReconcileOnly, CreatedAt: at, UpdatedAt: at,
		}
		receipt, _ := task.AppendJSONWithoutPayload(nil)
		f.receipts = append(f.receipts, receipt)
	}
	return f, nil
}

const (
	floorIdentity = `INSERT INTO idempotency (digest, namespace_id, operation, task_id, idempotency_key,
		algorithm, content_digest, status, receipt, payload_at, created_at, retain_until) VALUES `
	floorTask = `INSERT INTO task (id, namespace_id, queue_id, state, revision, handler, handler_version,
		payload_version, payload, business_key, available_at, deadline_at, task_timeout_ms, credential_id, created_at, updated_at,
		recovery_safety, max_attempts, attempt_timeout_ms, expire_at, lane, dispatch_state, dispatch_lane, order_value) VALUES `
	floorEvent = `INSERT INTO task_event (task_id, revision, kind, credential_id, created_at) VALUES `
	floorAudit = `INSERT INTO audit (namespace_id, credential_id, action, target_id, queue_id, handler, handler_version, request_id, created_at) VALUES `
)

// accept inserts a batch of 100.
func (f *floorAcceptance) accept(ctx context.Context, run string) error {
	keys, bodies := make([]string, len(f.bodies)), make([]int, len(f.bodies))
	for i := range keys {
		keys[i], bodies[i] = fmt.Sprintf("%s-%d", run, i), i
	}
	_, err := f.insert(ctx, keys, bodies)
	return err
}

// insert makes a task for each key, with one of the bodies, and returns their ids.
func (f *floorAcceptance) insert(ctx context.Context, keys []string, bodies []int) ([][]byte, error) {
	now := time.Now().UnixMicro()
	made := make([][]byte, len(keys))
	var identities, tasks, events, audits []any
	for i, key := range keys {
		id, body := uuid.Must(uuid.NewV7()), f.bodies[bodies[i]]
		made[i] = id[:]
		digest, content := sha256.Sum256([]byte(key)), sha256.Sum256(body)
		identities = append(identities, digest[:], f.namespace, 1, id[:], []byte(key), []byte("orbit-json-v1"), content[:], 201,
			f.receipts[bodies[i]], 200, now, now+int64(orbit.IdempotencyRetention/time.Microsecond))
		tasks = append(tasks, id[:], f.namespace, f.queue, 1, 1, []byte("bench.work"), []byte("v1"), []byte("v1"), body, []byte{},
			now, now+86_400_000_000, 86_400_000, f.credential, now, now, 1, 1, 30_000, now+86_400_000_000, floorLane, 1, floorLane, now)
		events = append(events, id[:], 1, []byte("accepted"), f.credential, now)
		audits = append(audits, f.namespace, f.credential, []byte("task.submit"), id[:], f.queue, []byte("bench.work"), []byte("v1"), id[:], now)
	}
	return made, inTx(ctx, f.db, func(tx *sql.Tx) error {
		for _, s := range []struct {
			insert string
			args   []any
		}{{floorIdentity, identities}, {floorTask, tasks}, {floorEvent, events}, {floorAudit, audits}} {
			if _, err := tx.ExecContext(ctx, s.insert+rowsOf(len(keys), len(s.args)/len(keys)), s.args...); err != nil {
				return err
			}
		}
		return nil
	})
}
