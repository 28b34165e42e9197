package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/orbitkit/orbit/handoff"
)

// A row is a ticket with what the contract does not show.
type row struct {
	handoff.Ticket // generation 0: the key was never offered
	token          string
	receipt        handoff.Receipt
}

const columns = `ticket_key, generation, source, addressee, reply_to, payload, ttl_ns, deadline, state,
	token, receipt_at, receipt_status, receipt_summary, receipt_failure, artifacts`

// scan reads the columns. Who holds the ticket is not stored: it follows from the state,
// so that no holder can be left behind.
func scan(scan func(...any) error) (r row, err error) {
	var key, source, addressee, replyTo, state, token, status, summary, failure, artifacts []byte
	var deadline, receiptAt int64
	err = scan(&key, &r.Generation, &source, &addressee, &replyTo, &r.Payload, &r.TTL, &deadline, &state,
		&token, &receiptAt, &status, &summary, &failure, &artifacts)
	if err != nil {
		return row{}, err
	}
	r.Key, r.From, r.To, r.ReplyTo = handoff.Key(key), handoff.Agent(source), handoff.Agent(addressee), string(replyTo)
	r.Deadline, r.State, r.token = time.UnixMicro(deadline).UTC(), handoff.State(state), string(token)
	if r.State == handoff.StateAccepted {
		r.Holder = r.To
	}
	if receiptAt != 0 {
		r.ReceiptAt = time.UnixMicro(receiptAt).UTC()
		r.receipt = handoff.Receipt{Status: handoff.ReceiptStatus(status), Summary: string(summary), Failure: string(failure)}
		r.receipt.Artifacts, err = decodeArtifacts(artifacts)
	}
	return r, err
}

// values returns what scan reads, bytes as bytes: SQLite keeps text and blobs apart.
func (r row) values() ([]any, error) {
	artifacts, err := encodeArtifacts(r.receipt.Artifacts)
	if err != nil {
		return nil, err
	}
	receiptAt := int64(0)
	if !r.ReceiptAt.IsZero() {
		receiptAt = r.ReceiptAt.UnixMicro()
	}
	return []any{
		[]byte(r.Key), r.Generation, []byte(r.From), []byte(r.To), []byte(r.ReplyTo), append([]byte{}, r.Payload...), int64(r.TTL),
		r.Deadline.UnixMicro(), []byte(r.State),
		[]byte(r.token), receiptAt, []byte(r.receipt.Status), []byte(r.receipt.Summary), []byte(r.receipt.Failure), artifacts,
	}, nil
}

// Artifacts are bytes to us, which JSON text is not: so each goes in base64.
func encodeArtifacts(artifacts []string) ([]byte, error) {
	all := make([][]byte, len(artifacts))
	for i, a := range artifacts {
		all[i] = []byte(a)
	}
	return json.Marshal(all)
}

func decodeArtifacts(text []byte) (artifacts []string, err error) {
	var all [][]byte
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("artifacts: %w", err)
	}
	for _, a := range all {
		artifacts = append(artifacts, string(a))
	}
	return artifacts, nil
}

// lock reads the row of a key and holds it until the end of the transaction.
func (s *store) lock(ctx context.Context, tx *sql.Tx, key handoff.Key) (row, error) {
	r, err := scan(tx.QueryRowContext(ctx, "SELECT "+columns+" FROM handoff_ticket WHERE ticket_key = ?"+s.engine.lock, []byte(key)).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return row{}, nil
	}
	return r, err
}

const insert = "INSERT INTO handoff_ticket (" + columns + ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"

const renew = `UPDATE handoff_ticket
	SET generation = ?, source = ?, addressee = ?, reply_to = ?, payload = ?, ttl_ns = ?, deadline = ?, state = ?,
		token = ?, receipt_at = ?, receipt_status = ?, receipt_summary = ?, receipt_failure = ?, artifacts = ?
	WHERE ticket_key = ?`

const mark = `UPDATE handoff_ticket
	SET state = ?, token = ?, receipt_at = ?, receipt_status = ?, receipt_summary = ?, receipt_failure = ?, artifacts = ?
	WHERE ticket_key = ?`

// A change is what becomes of a row.
type change int

const (
	none   change = iota
	marked        // state, token, receipt
	anew          // the next generation
)

func (s *store) write(ctx context.Context, tx *sql.Tx, r row, c change) error {
	if c == none {
		return nil
	}
	values, err := r.values()
	if err != nil {
		return err
	}
	statement := mark
	switch {
	case c == anew && r.Generation == 1:
		statement = insert
	case c == anew:
		statement, values = renew, append(values[1:], values[0])
	default:
		values = append(values[8:], values[0])
	}
	_, err = tx.ExecContext(ctx, statement, values...)
	return err
}
