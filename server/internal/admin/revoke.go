package admin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/orbitkit/orbit/internal/sqldb"
)

const selectNamespace = `
SELECT namespace_id
FROM credential
WHERE id = ?`

const revokeCredential = `
UPDATE credential
SET revoked_at = ?
WHERE id = ?
  AND revoked_at IS NULL`

// Revoke ends a credential: from now on each request with it is refused. To revoke one
// twice changes nothing but the audit. It returns ErrMissing if there is none with this id.
func (o *Operator) Revoke(ctx context.Context, id sqldb.ID, reason string) error {
	if err := checkReason(reason); err != nil {
		return err
	}
	return o.change(ctx, func(w *writer) error {
		var namespace sqldb.ID
		err := w.tx.QueryRowContext(ctx, selectNamespace, id).Scan(&namespace)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return fmt.Errorf("credential %s %w", id, ErrMissing)
		case err != nil:
			return fmt.Errorf("look up credential: %w", err)
		}
		if err := w.revoke(id); err != nil {
			return err
		}
		w.audits = append(w.audits, audit{action: "credential.revoke", namespace: namespace, target: id, note: reason})
		return nil
	})
}

func (w *writer) revoke(id sqldb.ID) error {
	if _, err := w.tx.ExecContext(w.ctx, revokeCredential, w.now, id); err != nil {
		return fmt.Errorf("revoke credential: %w", err)
	}
	return nil
}
