package session

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/server/internal/auth"
)

// recheckLoop looks again, now and then, whether connections may go on: one look-up per
// credential, not per connection.
func (h *Hub) recheckLoop(ctx context.Context) {
	for ctx.Err() == nil {
		waitFor(ctx, nil, h.cfg.Recheck*3/4+rand.N(h.cfg.Recheck/2))
		for credential, sessions := range h.byCredential() {
			if ctx.Err() == nil {
				h.recheck(ctx, credential, sessions)
			}
		}
		h.endReplaced(ctx)
	}
}

const endedBatch = 500

// endCheckLoop ends the connections of credentials that count no more, soon after the fact
// (ERR-002). It costs one statement for all connections of a node.
func (h *Hub) endCheckLoop(ctx context.Context) {
	for failing := false; ctx.Err() == nil; {
		waitFor(ctx, nil, h.cfg.EndCheck*3/4+rand.N(h.cfg.EndCheck/2))
		err := h.endCheck(ctx)
		if err != nil && !failing && ctx.Err() == nil { // a database that is away is not news every second
			h.log.ErrorContext(ctx, "credentials could not be looked up again", "err", err)
		}
		failing = err != nil
	}
}

func (h *Hub) endCheck(ctx context.Context) error {
	byCredential := h.byCredential()
	for batch := range slices.Chunk(slices.Collect(maps.Keys(byCredential)), endedBatch) {
		lookUp, cancel := context.WithTimeout(ctx, authTimeout)
		ended, err := h.auth.Ended(lookUp, batch)
		cancel()
		if err != nil {
			return err
		}
		for _, credential := range ended {
			h.recheck(ctx, credential, byCredential[credential])
		}
	}
	return nil
}

func (h *Hub) byCredential() map[sqldb.ID][]*session {
	sessions := make(map[sqldb.ID][]*session)
	for _, s := range h.connected() {
		sessions[s.principal.Credential] = append(sessions[s.principal.Credential], s)
	}
	return sessions
}

// connected returns the sessions of all processes.
func (h *Hub) connected() []*session {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]*session, 0, len(h.sessions))
	for _, s := range h.sessions {
		list = append(list, s)
	}
	return list
}

// recheck ends the sessions of a credential that may not do any more what they do. A
// database that does not answer ends nothing.
func (h *Hub) recheck(ctx context.Context, credential sqldb.ID, sessions []*session) {
	lookUp, cancel := context.WithTimeout(ctx, authTimeout)
	defer cancel()
	p, err := h.auth.Refresh(lookUp, credential)
	var refused *auth.Error
	switch {
	case errors.As(err, &refused):
		for _, s := range sessions {
			s.end(wire.CloseUnauthenticated, refused.Reason)
		}
		return
	case err != nil:
		if ctx.Err() == nil {
			h.log.ErrorContext(ctx, "credential could not be looked up again", "err", err)
		}
		return
	}
	for _, s := range sessions {
		if !p.Can(auth.WorkersConnect) || !p.Can(auth.WorkersConsume) ||
			slices.ContainsFunc(s.queues, func(q sqldb.ID) bool { return !p.MayUse(q) }) {
			s.end(wire.CloseUnauthenticated, "the credential lost a permission")
		}
	}
}

const (
	replacedBatch  = 200
	selectReplaced = `
SELECT namespace_id, process_id, connected_at
FROM worker_session
WHERE (namespace_id, process_id) IN `
)

// endReplaced ends the sessions of processes that have connected to another node. A claim
// gives them nothing, but may be long in coming.
func (h *Hub) endReplaced(ctx context.Context) {
	for batch := range slices.Chunk(h.connected(), replacedBatch) {
		newest, err := h.newestConnections(ctx, batch)
		if err != nil {
			if ctx.Err() == nil {
				h.log.ErrorContext(ctx, "sessions could not be looked up again", "err", err)
			}
			return
		}
		for _, s := range batch {
			if at, found := newest[s.key()]; found && at != s.connectedAt {
				s.end(wire.CloseReplaced, "the process connected again")
			}
		}
	}
}

func (h *Hub) newestConnections(ctx context.Context, sessions []*session) (map[processKey]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, authTimeout)
	defer cancel()
	var args []any
	for _, s := range sessions {
		args = append(args, s.principal.Namespace, s.process)
	}
	query := selectReplaced + "(" + strings.TrimSuffix(strings.Repeat("(?,?),", len(sessions)), ",") + ")"
	rows, err := h.db.Read().QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	newest := make(map[processKey]int64, len(sessions))
	for rows.Next() {
		var (
			k  processKey
			at int64
		)
		if err := rows.Scan(&k.namespace, &k.process, &at); err != nil {
			return nil, err
		}
		newest[k] = at
	}
	return newest, rows.Err()
}
