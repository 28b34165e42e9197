package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/internal/throttle"
)

// An Error refuses a request for want of a valid credential (ERR-002). Any other
// error of this package means that the credential could not be looked up.
type Error struct {
	Reason     string        // for people; holds nothing of the token
	RetryAfter time.Duration // set if too many have failed from this address (API-027)
}

// Error returns the reason.
func (e *Error) Error() string { return e.Reason }

var (
	errMissing  = &Error{Reason: "one Authorization header with a bearer token is required"}
	errUnknown  = &Error{Reason: "the credential is not known"}
	errExpired  = &Error{Reason: "the credential has expired"}
	errRevoked  = &Error{Reason: "the credential has been revoked"}
	errDisabled = &Error{Reason: "the application or namespace of the credential is disabled"}
)

// stateActive is the state of an application and of a namespace in use.
const stateActive = 1

// lookUpTimeout bounds one look-up of a credential.
const lookUpTimeout = 10 * time.Second

// An Authenticator looks credentials up. It keeps nothing between requests, but requests
// that come at the same time with the same credential share a look-up. It is safe for
// concurrent use.
type Authenticator struct {
	db               *sqldb.DB
	selectCredential string
	credentials      *shared[sqldb.ID, credential]
	failures         *throttle.Failures
}

// New returns an authenticator that reads db.
func New(db *sqldb.DB) *Authenticator {
	a := &Authenticator{db: db, failures: throttle.New(), selectCredential: fmt.Sprintf(selectCredential, db.Dialect().Clock)}
	a.credentials = newShared(a.lookUp)
	return a
}

// Authenticate tells who sends r. Its error is an [*Error] if the credential is
// missing, malformed, unknown, expired, revoked, or belongs to a disabled application or
// namespace. Who fails too often from one address is held back for a moment (API-027).
func (a *Authenticator) Authenticate(ctx context.Context, r *http.Request) (Principal, error) {
	p, err := a.identify(ctx, r)
	var refused *Error
	if errors.As(err, &refused) {
		if wait := a.failures.HoldBack(ctx, r.RemoteAddr); wait > 0 {
			return p, &Error{Reason: refused.Reason, RetryAfter: wait}
		}
	}
	return p, err
}

func (a *Authenticator) identify(ctx context.Context, r *http.Request) (Principal, error) {
	token, err := bearer(r.Header)
	if err != nil {
		return Principal{}, err
	}
	id, secret, ok := parseToken(token)
	if !ok {
		return Principal{}, errUnknown
	}
	c, err := a.credentials.get(ctx, id)
	if err != nil {
		return Principal{}, err
	}
	// An unknown credential takes the same path: its digest is all zeros. What else is
	// wrong with a credential is told only to who has its secret.
	digest := secret.digest()
	if subtle.ConstantTimeCompare(digest[:], c.digest[:]) != 1 {
		return Principal{}, errUnknown
	}
	return c.judge()
}

// Refresh tells what a credential that was accepted before may do now: for connections
// that outlive a request. Its errors are those of Authenticate.
func (a *Authenticator) Refresh(ctx context.Context, credential sqldb.ID) (Principal, error) {
	c, err := a.credentials.get(ctx, credential)
	if err != nil {
		return Principal{}, err
	}
	return c.judge()
}

const selectEnded = `
SELECT c.id
FROM credential c
JOIN namespace n ON n.id = c.namespace_id
JOIN application a ON a.id = n.application_id
WHERE c.id IN %s
  AND (c.revoked_at IS NOT NULL OR c.expires_at <= %s OR n.state <> %[3]d OR a.state <> %[3]d)`

// Ended returns which of credentials count no more. It is one statement, so that it can be
// asked often for all that are in use; Refresh tells why.
func (a *Authenticator) Ended(ctx context.Context, credentials []sqldb.ID) ([]sqldb.ID, error) {
	args := make([]any, len(credentials))
	for i, id := range credentials {
		args[i] = id
	}
	var ended []sqldb.ID
	query := fmt.Sprintf(selectEnded, sqldb.Placeholders(len(args)), a.db.Dialect().Clock, stateActive)
	err := sqldb.EachRow(ctx, a.db.Read(), query, args, func(scan func(...any) error) error {
		var id sqldb.ID
		err := scan(&id)
		ended = append(ended, id)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look up credentials: %w", err)
	}
	return ended, nil
}

// bearer returns the token of the only Authorization header (API-026); the scheme is
// matched without case (API-034).
func bearer(h http.Header) (string, error) {
	values := h["Authorization"]
	if len(values) != 1 {
		return "", errMissing
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", errMissing
	}
	return strings.Trim(token, " "), nil
}

// A credential is a stored one, as it is now.
type credential struct {
	principal Principal
	digest    [sha256.Size]byte
	known     bool
	expired   bool
	revoked   bool
	disabled  bool
}

// judge returns what the credential may do, or why it counts no more.
func (c *credential) judge() (Principal, error) {
	switch {
	case !c.known:
		return Principal{}, errUnknown
	case c.revoked:
		return Principal{}, errRevoked
	case c.expired:
		return Principal{}, errExpired
	case c.disabled:
		return Principal{}, errDisabled
	}
	return c.principal, nil
}

// lookUp reads a credential, and its queues if it is restricted to some. Nobody's
// request bounds it, since several may wait for it.
func (a *Authenticator) lookUp(id sqldb.ID) (credential, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lookUpTimeout)
	defer cancel()
	c, err := a.read(ctx, id)
	if err != nil || !c.known || c.principal.AllQueues {
		return c, err
	}
	c.principal.Queues, err = a.queues(ctx, id)
	return c, err
}

const selectCredential = `
SELECT c.secret_digest, c.permissions, c.all_queues, c.expires_at, c.revoked_at,
       n.id, n.state, a.id, a.state, %s
FROM credential c
JOIN namespace n ON n.id = c.namespace_id
JOIN application a ON a.id = n.application_id
WHERE c.id = ?`

// read looks a credential up by its primary key. One that does not exist is a
// credential that is not known.
func (a *Authenticator) read(ctx context.Context, id sqldb.ID) (credential, error) {
	var (
		c                           = credential{principal: Principal{Credential: id}, known: true}
		digest, permissions         []byte
		expires, revoked            sql.NullInt64
		namespaceState, application int
		now                         int64
	)
	err := a.db.Read().QueryRowContext(ctx, a.selectCredential, id).Scan(
		&digest, &permissions, &c.principal.AllQueues, &expires, &revoked,
		&c.principal.Namespace, &namespaceState, &c.principal.Application, &application, &now)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return credential{}, nil
	case err != nil:
		return credential{}, fmt.Errorf("look up credential: %w", err)
	}
	copy(c.digest[:], digest)
	c.principal.CursorKey = cursorKey(c.digest)
	c.principal.Permissions = parseColumn(permissions)
	c.expired = expires.Valid && expires.Int64 <= now
	c.revoked = revoked.Valid
	c.disabled = namespaceState != stateActive || application != stateActive
	return c, nil
}

const selectScope = `
SELECT queue_id
FROM credential_queue
WHERE credential_id = ?`

func (a *Authenticator) queues(ctx context.Context, id sqldb.ID) (map[sqldb.ID]struct{}, error) {
	rows, err := a.db.Read().QueryContext(ctx, selectScope, id)
	if err != nil {
		return nil, fmt.Errorf("look up queues of credential: %w", err)
	}
	defer rows.Close()
	queues := map[sqldb.ID]struct{}{}
	for rows.Next() {
		var queue sqldb.ID
		if err := rows.Scan(&queue); err != nil {
			return nil, fmt.Errorf("look up queues of credential: %w", err)
		}
		queues[queue] = struct{}{}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("look up queues of credential: %w", err)
	}
	return queues, nil
}
