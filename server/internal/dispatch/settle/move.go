package settle

import (
	"fmt"
	"strings"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/task"
)

// A move is what happens to the row of a task that leaves LEASED, RUNNING or its place
// in line. Tasks with equal moves are written by one statement.
type move struct {
	to          task.State
	uncertain   bool
	unstarted   bool // one more un-started claim in a row
	result      bool // the task has one
	wait        task.DispatchState
	availableAt int64 // new one of a DELAYED task; 0 keeps the old
}

type moves map[move][]sqldb.ID

func (ms *moves) add(m move, id sqldb.ID) {
	if *ms == nil {
		*ms = make(moves)
	}
	(*ms)[m] = append((*ms)[m], id)
}

// MySQL assigns from left to right, SQLite from the old row: an assignment below that
// reads a column stands before the one that changes it.
const (
	endTasks = `
UPDATE task{by}
SET state = ?, revision = revision + 1, updated_at = ?, completed_at = ?, attempt_id = NULL,
    effect_uncertain = ?, unstarted_count = unstarted_count + ?,
    dispatch_state = 0, dispatch_lane = NULL, expire_at = NULL
WHERE id IN `

	expireAt = `CASE WHEN start_deadline_at < deadline_at THEN start_deadline_at ELSE deadline_at END`

	requeueTasks = `
UPDATE task{by}
SET state = ?, revision = revision + 1, updated_at = ?, attempt_id = NULL,
    effect_uncertain = ?, unstarted_count = unstarted_count + ?, expire_at = ` + expireAt + `,
    dispatch_state = ?, dispatch_lane = CASE WHEN ? THEN lane END
WHERE id IN `

	delayTasks = `
UPDATE task{by}
SET order_value = CASE WHEN ? > 0 THEN ? ELSE available_at END,
    available_at = CASE WHEN ? > 0 THEN ? ELSE available_at END,
    state = ?, revision = revision + 1, updated_at = ?, attempt_id = NULL,
    effect_uncertain = ?, unstarted_count = unstarted_count + ?, expire_at = ` + expireAt + `,
    dispatch_state = ?, dispatch_lane = 0
WHERE id IN `
)

const (
	setTaskResult = `result = CASE id%s END, `
	resultEach    = ` WHEN ? THEN ?`
)

// addMoves has all moves written.
func (s *Settlement) addMoves(w *sqldb.Writes) {
	for m, ids := range s.moves {
		query, args := m.statement(s.Now)
		if m.result {
			query, args = s.withResults(query, args, ids)
		}
		s.updateTasks(w, fmt.Sprintf("move tasks to %v", m.to), query, args, ids)
	}
}

// withResults has a statement set the result of each task, too.
func (s *Settlement) withResults(query string, args []any, ids []sqldb.ID) (string, []any) {
	var results []any
	for _, id := range ids {
		results = append(results, id, s.results[id])
	}
	set := "SET " + fmt.Sprintf(setTaskResult, strings.Repeat(resultEach, len(ids)))
	return strings.Replace(query, "SET ", set, 1), append(results, args...)
}

func (m move) statement(now int64) (query string, args []any) {
	unstarted := 0
	if m.unstarted {
		unstarted = 1
	}
	switch m.wait {
	case task.DispatchReady, task.DispatchKeyBlocked:
		return requeueTasks, []any{m.to, now, m.uncertain, unstarted, m.wait, m.wait == task.DispatchReady}
	case task.DispatchDelayed:
		at := m.availableAt
		return delayTasks, []any{at, at, at, at, m.to, now, m.uncertain, unstarted, m.wait}
	}
	var completed any
	if m.to.Terminal() {
		completed = now
	}
	return endTasks, []any{m.to, now, completed, m.uncertain, unstarted}
}
