package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
)

// A Filter says which rows to list. Its conditions are all to hold.
type Filter struct {
	States  []State // empty means every state but Delivered
	Target  string  // empty means every target
	QueueID string  // with Target: 32 hexadecimal characters, empty means every queue
	Key     string  // with Target: the one submit request with this key
	TaskID  string  // with Key: the one cancel of this task with this key instead
	Unknown bool    // only rows of which a send ended unknown
}

func (f *Filter) validate() error {
	for _, s := range f.States {
		if s < Pending || s > Discarded {
			return &orbit.InvalidArgumentError{Field: "state", Rule: "must be one of PENDING, DELIVERED, REJECTED, BLOCKED and DISCARDED"}
		}
	}
	if f.Key != "" && f.Target == "" {
		return &orbit.InvalidArgumentError{Field: "target", Rule: "is required with a key"}
	}
	switch {
	case f.TaskID == "":
	case f.Key == "":
		return &orbit.InvalidArgumentError{Field: "key", Rule: "is required with a task"}
	case !orbit.ValidID(f.TaskID):
		return &orbit.InvalidArgumentError{Field: "task_id", Rule: "must be 32 lower-case hexadecimal characters"}
	}
	return validScope(f.Target, f.QueueID)
}

// ParseState returns the state with this name, in capitals or not.
func ParseState(name string) (State, error) {
	for s := Pending; s <= Discarded; s++ {
		if strings.EqualFold(name, s.String()) {
			return s, nil
		}
	}
	return 0, fmt.Errorf("outbox: %w", (&Filter{States: []State{0}}).validate())
}

// List returns at most limit rows (1 to 1000) with a seq greater than after, in ascending
// order of seq, without their request bytes. It finds rows by the index of their state,
// so that those who need a person are found at once beside millions of delivered ones.
func (s *Store) List(ctx context.Context, f Filter, after int64, limit int) ([]Row, error) {
	if limit < 1 || limit > MaxRows {
		return nil, fmt.Errorf("outbox: list of %d rows: must be 1 to %d", limit, MaxRows)
	}
	if err := f.validate(); err != nil {
		return nil, fmt.Errorf("outbox: list: %w", err)
	}
	if len(f.States) == 0 {
		f.States = []State{Pending, Rejected, Blocked, Discarded}
	}
	rows, err := s.list(ctx, &f, after, limit)
	if err != nil {
		return nil, failed(s.dialect, "list rows", err)
	}
	return rows, nil
}

func (s *Store) list(ctx context.Context, f *Filter, after int64, limit int) (found []Row, err error) {
	if f.Key != "" {
		return s.listKey(ctx, f, after)
	}
	lanes, err := s.lanesOf(ctx, f)
	if err != nil {
		return nil, err
	}
	for len(found) < limit {
		seqs, err := s.seqsOf(ctx, f, lanes, after, limit)
		if err != nil || len(seqs) == 0 {
			return found, err
		}
		rows, err := s.details(ctx, f, seqs)
		if err != nil {
			return nil, err
		}
		found = append(found, rows...)
		after = seqs[len(seqs)-1]
		if len(seqs) < limit {
			break
		}
	}
	return found[:min(len(found), limit)], nil
}

// details reads rows without their requests, those that the filter still fits.
func (s *Store) details(ctx context.Context, f *Filter, seqs []int64) ([]Row, error) {
	query := strings.Replace(selectRow, "\n  r.request,", "\n  '',", 1) + s.dialect.Clock + selectRest + `
FROM orbit_outbox r` + s.byPrimary + `
WHERE r.seq IN ` + sqldb.Placeholders(len(seqs)) + `
ORDER BY r.seq`
	rows, err := readAll(ctx, s.db.Read(), newRowReader().whole, query, seqArgs(nil, seqs)...)
	return slices.DeleteFunc(rows, func(r Row) bool {
		return f.Unknown && !r.Last.Unknown || !slices.Contains(f.States, r.State) || f.QueueID != "" && r.QueueID != f.QueueID
	}), err
}

func (s *Store) listKey(ctx context.Context, f *Filter, after int64) ([]Row, error) {
	var seq int64
	identity := identityOf(f.Target, OperationSubmit, nil, f.Key)
	if f.TaskID != "" {
		task, err := sqldb.ParseID(f.TaskID)
		if err != nil {
			return nil, err
		}
		identity = identityOf(f.Target, OperationCancel, task[:], f.Key)
	}
	err := s.db.Read().QueryRowContext(ctx, findIdentity, identity[:]).Scan(&seq)
	if errors.Is(err, sql.ErrNoRows) || err == nil && seq <= after {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return s.details(ctx, f, []int64{seq})
}

// seqsOf returns the next seqs of each state, merged. Delivered rows are most of a table
// and are read in its own order; of the others the index tells all, and few are sorted.
func (s *Store) seqsOf(ctx context.Context, f *Filter, lanes []int64, after int64, limit int) (seqs []int64, err error) {
	if lanes != nil && len(lanes) == 0 {
		return nil, nil
	}
	for _, state := range f.States {
		hint := s.dialect.ByIndex("orbit_outbox_due")
		if state == Delivered && lanes == nil {
			hint = s.byPrimary
		}
		query := "\nSELECT seq\nFROM orbit_outbox" + hint + "\nWHERE state = ? AND seq > ?"
		args := []any{int64(state), after}
		if len(lanes) > 0 {
			query += " AND lane IN " + sqldb.Placeholders(len(lanes))
			args = seqArgs(args, lanes)
		}
		some, err := readAll(ctx, s.db.Read(), func(rows *sql.Rows) (seq int64, err error) {
			return seq, rows.Scan(&seq)
		}, query+"\nORDER BY seq\nLIMIT ?", append(args, limit)...)
		if err != nil {
			return nil, err
		}
		seqs = append(seqs, some...)
	}
	slices.Sort(seqs)
	return seqs[:min(len(seqs), limit)], nil
}

const (
	shardOfState = `
SELECT shard
FROM orbit_outbox
WHERE state = ? AND shard >= ? AND shard < ?
ORDER BY shard
LIMIT 1`

	laneOfState = `
SELECT lane, target
FROM orbit_outbox
WHERE state = ? AND shard = ? AND lane BETWEEN ? AND 9223372036854775807
ORDER BY lane
LIMIT 1`

	// maxLanes bounds what a filter by target alone remembers.
	maxLanes = 10_000
)

// lanesOf returns the lanes that a filter by target means, nil for all.
func (s *Store) lanesOf(ctx context.Context, f *Filter) (lanes []int64, err error) {
	switch {
	case f.Target == "":
		return nil, nil
	case f.QueueID != "":
		return []int64{LaneOf(f.Target, f.QueueID)}, nil
	}
	lanes = []int64{}
	for _, state := range f.States {
		for shard := 0; ; shard++ {
			err := s.db.Read().QueryRowContext(ctx, shardOfState, int64(state), int64(shard), MaxShards).Scan(&shard)
			if errors.Is(err, sql.ErrNoRows) {
				break
			}
			if err == nil {
				lanes, err = s.addLanes(ctx, lanes, state, shard, f.Target)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	slices.Sort(lanes)
	return slices.Compact(lanes), nil
}

func (s *Store) addLanes(ctx context.Context, lanes []int64, state State, shard int, target string) ([]int64, error) {
	for from := int64(math.MinInt64); ; from++ {
		var name []byte
		err := s.db.Read().QueryRowContext(ctx, laneOfState, int64(state), int64(shard), from).Scan(&from, &name)
		if errors.Is(err, sql.ErrNoRows) {
			return lanes, nil
		}
		if err != nil {
			return nil, err
		}
		if string(name) == target {
			lanes = append(lanes, from)
		}
		if len(lanes) > maxLanes {
			return nil, fmt.Errorf("target has rows of more than %d queues: name one", maxLanes)
		}
		if from == math.MaxInt64 {
			return lanes, nil
		}
	}
}
