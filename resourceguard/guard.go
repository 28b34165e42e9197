package resourceguard

import (
	"context"
	"errors"
	"fmt"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// A Dialect names the engine that a [Guard] speaks to.
type Dialect = sqldb.Dialect

// The engines.
var (
	MySQL      = sqldb.MySQL // also MariaDB
	SQLite     = sqldb.SQLite
	PostgreSQL = sqldb.PostgreSQL
)

// An AuthoriseFunc decides whether the caller, whom the owner has authenticated and
// carries in ctx, may use key of namespace. Any error refuses. It is shown no token:
// a token proves no permission. It may be called at the same time by many goroutines.
type AuthoriseFunc func(ctx context.Context, namespace, key string) error

// Config tunes a Guard. The zero value is ready to use.
type Config struct {
	// KeepRaise keeps the token raised when fn refuses, so that an older writer stays
	// fenced although nothing was written. It costs a savepoint per write. The
	// transaction stays usable and Apply returns [ErrRefused]: with nothing else in
	// the transaction commit then, else see [RefusedError].
	// Default false: the whole transaction is rolled back.
	KeepRaise bool

	// Check adds the owner's own condition to the atomic step, such as "the lease is
	// still valid" or a version of the business row. It runs on the first
	// application of an operation, under the lock of the key, before the token is
	// raised; its error ends Apply and the transaction. Default none.
	Check func(ctx context.Context, tx Tx, w Write) error
}

// A Guard judges writes in the transactions of its callers. It keeps no state of its
// own, so any number of processes may guard one database. It is safe for concurrent
// use.
type Guard struct {
	dialect   *Dialect
	authorise AuthoriseFunc
	cfg       Config
	sql       statements
}

// New returns a guard for databases of the dialect. Without an AuthoriseFunc there is
// none: the guard does not take anyone for authorised by itself.
func New(dialect *Dialect, authorise AuthoriseFunc, cfg Config) (*Guard, error) {
	if dialect != MySQL && dialect != SQLite && dialect != PostgreSQL {
		return nil, invalid("dialect", "must be given: MySQL, SQLite or PostgreSQL")
	}
	if authorise == nil {
		return nil, invalid("authorise", "must be given: a token is no permission")
	}
	return &Guard{dialect: dialect, authorise: authorise, cfg: cfg, sql: statementsFor(dialect)}, nil
}

// made refuses a guard that New has not made: it has nobody to ask what is allowed.
func (g *Guard) made() error {
	if g == nil || g.authorise == nil {
		return invalid("guard", "must be made by New")
	}
	return nil
}

func allowed(ctx context.Context, authorise AuthoriseFunc, namespace, key string) error {
	if err := authorise(ctx, namespace, key); err != nil {
		return fmt.Errorf("%w: namespace %q, key %q: %w", ErrNotAuthorised, namespace, key, err)
	}
	return nil
}

// Retryable reports whether err says that the whole transaction is to be run again: an
// [ErrRetryable], or what the engine told a statement of the owner's own, BeginTx or
// Commit. At SERIALIZABLE PostgreSQL may refuse the COMMIT of a transaction whose every
// statement went well.
func (g *Guard) Retryable(err error) bool {
	return errors.Is(err, ErrRetryable) || g.made() == nil && g.dialect.Transient(err)
}

// retryable marks the errors after which the whole transaction is to be run again.
func (g *Guard) retryable(err error) error {
	if errors.Is(err, ErrRetryable) || !g.dialect.Transient(err) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrRetryable, err)
}
