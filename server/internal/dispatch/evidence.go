package dispatch

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
)

// evidenceLateFinish is the kind of what a worker reported after its attempt had ended.
const evidenceLateFinish = "late_finish"

// An evidence row keeps what was reported and could not be used any more.
type evidence struct {
	id      sqldb.ID
	task    sqldb.ID
	attempt sqldb.ID
	kind    string
	body    []byte
	at      int64
}

// lateFinish makes the evidence of a finish that came too late. Its id follows from what
// was reported, so that a repeat adds nothing.
func lateFinish(s *settle.Settlement, f *Finish) evidence {
	a := s.Attempt(f.Attempt)
	sum := sha256.Sum256(append(a.ID[:], f.digest()...))
	return evidence{id: sqldb.ID(sum[:16]), task: a.Task, attempt: a.ID, kind: evidenceLateFinish, body: f.evidenceBody(), at: s.Now}
}

// evidenceBody is a JSON object with the members of the message. The result is kept byte
// for byte.
func (f *Finish) evidenceBody() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"receipt":%s,"outcome":%q`, quote(f.Receipt), f.Outcome.String())
	if f.Retryable {
		b.WriteString(`,"retryable":true`)
	}
	if len(f.Error) > 0 {
		fmt.Fprintf(&b, `,"error":%s`, quote(f.Error))
	}
	if len(f.Result) > 0 {
		b.WriteString(`,"result":`)
		b.Write(f.Result)
	}
	b.WriteByte('}')
	return b.Bytes()
}

func quote(text []byte) []byte {
	quoted, _ := json.Marshal(string(text)) // strings always marshal
	return quoted
}

const (
	evidenceColumns = 6
	insertEvidence  = `
INSERT INTO evidence (id, task_id, attempt_id, kind, body, created_at)
VALUES `
)

func saveEvidence(ctx context.Context, tx *sqldb.Tx, list []evidence) error {
	if len(list) == 0 {
		return nil
	}
	var args []any
	for _, e := range list {
		args = append(args, e.id, e.task, e.attempt, []byte(e.kind), e.body, e.at)
	}
	_, err := tx.ExecContext(ctx, insertEvidence+sqldb.Rows(len(list), evidenceColumns)+tx.Dialect().OnConflict([]string{"id"}), args...)
	if err != nil {
		return fmt.Errorf("save evidence: %w", err)
	}
	return nil
}
