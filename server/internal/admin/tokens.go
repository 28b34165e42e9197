package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
	"github.com/orbitkit/orbit/server/internal/keyrow"
)

// MaxRaise is the highest version to which tokens can be raised, 2^64-3: the next claim
// and its release still have room (TOK-018).
const MaxRaise uint64 = settle.MaxClaimVersion

// A TokenRaise asks that no resource key gives a token again that it may have given
// before a restore or a fail-over. Of Min and By one is above zero.
type TokenRaise struct {
	Place         // Queue is not looked at; no application and no namespace means all of them
	Min    uint64 // no later token is at or below it; at most MaxRaise
	By     uint64 // instead of Min: this much above the highest version that is not used up
	DryRun bool   // look only, change nothing
	Reason string // for the audit; required unless DryRun
	// Progress is called from time to time with what has been done. Default: nobody is told.
	Progress func(TokensRaised)
}

// TokensRaised tells what a raise did or, if it was a dry run, would have done.
type TokensRaised struct {
	Min         uint64 `json:"min,string"`          // what it raised to
	FloorBefore uint64 `json:"floor_before,string"` // version at which new keys of the place began
	FloorAfter  uint64 `json:"floor_after,string"`
	Keys        int64  `json:"keys"`   // looked at, in the place
	Raised      int64  `json:"raised"` // of them; the others were there already
}

func (r *TokenRaise) validate() error {
	if r.Application != "" || r.Namespace != "" {
		if err := r.Place.validate(false); err != nil {
			return err
		}
	}
	switch {
	case r.Min != 0 && r.By != 0:
		return &InvalidError{"by", "must not be given beside min"}
	case r.Min == 0 && r.By == 0:
		return &InvalidError{"min", "or by is required, at least 1"}
	case r.Min > MaxRaise:
		return &InvalidError{"min", fmt.Sprintf("must be at most %d", MaxRaise)}
	case r.DryRun && r.Reason == "":
		return nil
	}
	return checkName("reason", r.Reason, maxReason)
}

// RaiseTokens raises the floor of a namespace or of all, and then the version of every
// key there that is below it; nothing is lowered (TOK-018). Who holds a key keeps it and
// its token. It works in short transactions beside running nodes, and each of them tells
// the audit: with an error the answer is what has been done, and the same call with the
// same Min goes on from there. A By is computed anew by each call.
func (o *Operator) RaiseTokens(ctx context.Context, r TokenRaise) (TokensRaised, error) {
	if err := r.validate(); err != nil {
		return TokensRaised{}, err
	}
	x := &tokenRaiser{Operator: o, ask: r}
	if x.ask.Progress == nil {
		x.ask.Progress = func(TokensRaised) {}
	}
	err := x.run(ctx)
	return x.done, err
}

// A tokenRaiser is a raise under way.
type tokenRaiser struct {
	*Operator
	ask      TokenRaise
	done     TokensRaised
	scope    sqldb.ID // namespace, or zero for all
	audit    int64    // number of its row
	complete bool
}

func (x *tokenRaiser) run(ctx context.Context) error {
	if x.ask.Namespace != "" {
		found, err := x.namespace(ctx, x.ask.Place)
		if err != nil {
			return err
		}
		x.scope = found.namespace
	}
	floors, err := keyrow.Floors(ctx, x.db.Write(), x.db.Dialect(), []sqldb.ID{x.scope}, "")
	if err != nil {
		return err
	}
	x.done.FloorBefore = floors[x.scope]
	if err := x.target(ctx); err != nil {
		return err
	}
	if x.ask.DryRun {
		x.done.FloorAfter = max(x.done.FloorBefore, x.done.Min)
		return x.eachLow(ctx, func(low []settle.Digest) error {
			x.done.Raised += int64(len(low))
			return nil
		})
	}
	// The floor first: of rows made from now on none is below, so that one pass is enough.
	if err := x.write(ctx, x.begin); err != nil {
		return err
	}
	if err := x.eachLow(ctx, func(low []settle.Digest) error { return x.raise(ctx, low) }); err != nil {
		return err
	}
	x.complete = true
	return x.write(ctx, x.note)
}

// target computes what is raised to.
func (x *tokenRaiser) target(ctx context.Context) error {
	if x.done.Min = x.ask.Min; x.ask.By == 0 {
		return nil
	}
	highest := x.done.FloorBefore
	err := x.eachPage(ctx, func(page []keyRow) error {
		for i := range page {
			// A key that is used up gives no token again; it must not stop the others.
			if v := page[i].version; v <= MaxRaise && x.concerns(&page[i]) {
				highest = max(highest, v)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if x.ask.By > MaxRaise-highest {
		return &InvalidError{"by", fmt.Sprintf("must be at most %d: the highest version is %d", MaxRaise-highest, highest)}
	}
	x.done.Min = highest + x.ask.By
	return nil
}

const selectVersions = `
SELECT digest, kind, namespace_id, version
FROM resource
WHERE digest > ?
ORDER BY digest
LIMIT ?`

// eachPage reads all rows, by primary key, in short statements without a lock.
func (x *tokenRaiser) eachPage(ctx context.Context, f func([]keyRow) error) error {
	after := []byte{}
	for n := keyWindow; n == keyWindow; {
		page := make([]keyRow, 0, keyWindow)
		err := sqldb.EachRow(ctx, x.db.Write(), selectVersions, []any{after, keyWindow}, func(scan func(...any) error) error {
			var r keyRow
			err := scan(&r.digest, &r.kind, &r.namespace, x.db.Dialect().ScanUint64(&r.version))
			page = append(page, r)
			return err
		})
		if err != nil {
			return fmt.Errorf("read versions of keys: %w", err)
		}
		if n = len(page); n > 0 {
			after = page[n-1].digest
			if err := f(page); err != nil {
				return err
			}
		}
	}
	return nil
}

// concerns reports whether a row is one of the keys asked for.
func (x *tokenRaiser) concerns(r *keyRow) bool {
	return r.kind == kindKey && (x.scope.IsZero() || r.namespace == x.scope)
}

const raiseBatch = 100 // rows of one transaction (LIC-014)

// eachLow calls f with the keys that are too low, in the order of their digests.
func (x *tokenRaiser) eachLow(ctx context.Context, f func([]settle.Digest) error) error {
	return x.eachPage(ctx, func(page []keyRow) error {
		var low []settle.Digest
		for i := range page {
			if !x.concerns(&page[i]) {
				continue
			}
			x.done.Keys++
			if page[i].version < x.done.Min {
				low = append(low, settle.Digest(page[i].digest))
			}
		}
		for len(low) > 0 {
			n := min(len(low), raiseBatch)
			if err := f(low[:n]); err != nil {
				return err
			}
			low = low[n:]
		}
		x.ask.Progress(x.done)
		return nil
	})
}

// raise raises the keys of one transaction. Its locks are waited for in the order that
// all others keep.
func (x *tokenRaiser) raise(ctx context.Context, low []settle.Digest) error {
	return x.write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		keys, err := settle.LockKeys(ctx, tx, low, tx.Dialect().ForUpdate)
		if err != nil {
			return err
		}
		before := x.done.Raised
		for _, k := range keys {
			if k.Raise(x.done.Min) {
				x.done.Raised++
			}
		}
		if x.done.Raised == before {
			return nil // they have risen by themselves
		}
		w := tx.Writes()
		keys.AddChanged(w, tx.Dialect())
		if err := w.Run(ctx); err != nil {
			return err
		}
		return x.note(ctx, tx)
	})
}

// write runs one transaction. What it does, the row of the audit tells, which is looked up
// if the answer to its commit is lost.
func (x *tokenRaiser) write(ctx context.Context, f func(context.Context, *sqldb.Tx) error) error {
	before := x.done
	err := x.db.TxResolve(ctx, func(tx *sqldb.Tx) error {
		x.done = before
		return f(ctx, tx)
	}, x.inForce)
	if err != nil && !errors.Is(err, sqldb.ErrUnknownCommit) {
		x.done = before
	}
	if err != nil {
		return fmt.Errorf("raise tokens: %w", err)
	}
	return nil
}

const (
	insertRaiseAudit = `
INSERT INTO audit (namespace_id, actor, action, target_id, note, created_at)
VALUES (?, ?, ?, ?, ?, ?)`

	updateRaiseAudit = `
UPDATE audit
SET note = ?
WHERE seq = ?`

	countRaiseAudit = `
SELECT COUNT(*)
FROM audit
WHERE seq = ? AND actor = ? AND note = ?`
)

// begin raises the floor and begins the row of the audit.
func (x *tokenRaiser) begin(ctx context.Context, tx *sqldb.Tx) (err error) {
	x.done.FloorBefore, x.done.FloorAfter, err = keyrow.RaiseFloor(ctx, tx, x.scope, x.done.Min)
	if err != nil {
		return err
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return err
	}
	result, err := tx.ExecContext(ctx, insertRaiseAudit, x.scope, []byte(x.actor), []byte("tokens.raise"), x.scope, x.text(), now)
	if err != nil {
		return fmt.Errorf("insert audit row: %w", err)
	}
	x.audit, err = result.LastInsertId()
	return err
}

// note brings the row of the audit up to date.
func (x *tokenRaiser) note(ctx context.Context, tx *sqldb.Tx) error {
	if _, err := tx.ExecContext(ctx, updateRaiseAudit, x.text(), x.audit); err != nil {
		return fmt.Errorf("update audit row: %w", err)
	}
	return nil
}

func (x *tokenRaiser) inForce(ctx context.Context, q sqldb.Querier) (bool, error) {
	var n int
	if err := q.QueryRowContext(ctx, countRaiseAudit, x.audit, []byte(x.actor), x.text()).Scan(&n); err != nil {
		return false, fmt.Errorf("look up audit row: %w", err)
	}
	return n > 0, nil
}

// text is what the audit tells so far.
func (x *tokenRaiser) text() []byte {
	place, state := "all namespaces", "not finished"
	if x.ask.Namespace != "" {
		place = "one namespace"
	}
	if x.complete {
		state = fmt.Sprintf("finished, of %d keys", x.done.Keys)
	}
	return fmt.Appendf(nil, "%s to %d; floor %d -> %d; keys raised %d (%s); %s",
		place, x.done.Min, x.done.FloorBefore, x.done.FloorAfter, x.done.Raised, state, x.ask.Reason)
}
