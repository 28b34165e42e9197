package admin

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// What the audit says of a rotation: the row of the old credential begins with who replaced
// it, the row of the new one with whom it replaces. The audit stays for good, so it is
// where the two are found together.
const (
	actionRotate     = "credential.rotate"
	actionCreate     = "credential.create"
	replacedByPrefix = "replaced by "
	replacesPrefix   = "replaces "
)

// A succession is where a credential stands in a row of rotations.
type succession struct {
	replaces   sqldb.ID
	replacedBy sqldb.ID
	since      int64 // when it was replaced, in microseconds
}

const selectSuccessions = `
SELECT target_id, action, note, created_at
FROM audit%s
WHERE target_id IN %s`

// successions reads what the audit tells of credentials, by their ids; of most it tells
// nothing. A credential is the target of a row for its creation, its rotation and each
// revocation.
func successions(ctx context.Context, db *sqldb.Dialect, q sqldb.Querier, ids ...sqldb.ID) (map[sqldb.ID]succession, error) {
	found := map[sqldb.ID]succession{}
	if len(ids) == 0 {
		return found, nil
	}
	args := make([]any, len(ids))
	for i, id := range ids {
		args[i] = id
	}
	query := fmt.Sprintf(selectSuccessions, db.ByIndex("audit_target"), sqldb.Placeholders(len(ids)))
	err := sqldb.EachRow(ctx, q, query, args, func(scan func(...any) error) error {
		var id sqldb.ID
		var action, text string
		var at int64
		if err := scan(&id, &action, &text, &at); err != nil {
			return err
		}
		s := found[id]
		s.learn(action, text, at)
		found[id] = s
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read audit of credentials: %w", err)
	}
	return found, nil
}

// learn reads one row of the audit. Of several rotations the last counts.
func (s *succession) learn(action, text string, at int64) {
	switch action {
	case actionCreate:
		if id, ok := named(text, replacesPrefix); ok {
			s.replaces = id
		}
	case actionRotate:
		if id, ok := named(text, replacedByPrefix); ok && at >= s.since {
			s.replacedBy, s.since = id, at
		}
	}
}

// named reads the id that follows the prefix of a note.
func named(text, prefix string) (sqldb.ID, bool) {
	rest, ok := strings.CutPrefix(text, prefix)
	if !ok || len(rest) < 2*len(sqldb.ID{}) {
		return sqldb.ID{}, false
	}
	id, err := sqldb.ParseID(rest[:2*len(sqldb.ID{})])
	return id, err == nil
}

// refuseReplaced refuses a credential that is being replaced already: its end is that of the
// overlap, so that nothing tells how long a life its heir is to have (REF-AUTH-001).
func (w *writer) refuseReplaced(id sqldb.ID) error {
	all, err := successions(w.ctx, w.tx.Dialect(), w.tx, id)
	if err != nil {
		return err
	}
	s := all[id]
	if s.replacedBy.IsZero() {
		return nil
	}
	var revoked bool
	err = w.tx.QueryRowContext(w.ctx, "SELECT revoked_at IS NOT NULL FROM credential WHERE id = ?", s.replacedBy).Scan(&revoked)
	if err != nil {
		return fmt.Errorf("look up the new credential: %w", err)
	}
	what := fmt.Sprintf("credential %s is being replaced by %s since %s", id, s.replacedBy, sqldb.Time(s.since).Format(time.RFC3339))
	if revoked {
		return &ConflictError{what + ", which has been revoked: make a new one with create"}
	}
	return &ConflictError{fmt.Sprintf("%s: rotate %s instead", what, s.replacedBy)}
}
