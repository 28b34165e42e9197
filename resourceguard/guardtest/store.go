package guardtest

import (
	"context"
	"errors"

	"github.com/orbitkit/orbit/resourceguard"
)

// A Store is a guard together with the resource that it guards: a log per namespace
// and key. Its errors are told apart by errors.Is and the sentinels of package
// resourceguard; a stale write is a *resourceguard.StaleError. It is used by several
// goroutines at once. If it is an io.Closer it is closed after use.
type Store interface {
	// Apply performs w in one atomic operation. When the guard applies it, the
	// business write appends an [Entry] to the log of the key and yields the receipt.
	// How the operation ends is told by end. An error that wraps
	// resourceguard.ErrRetryable makes the suite try again.
	Apply(ctx context.Context, w resourceguard.Write, receipt []byte, end End) (resourceguard.Result, error)

	// Log returns the entries of a key in the order in which they were committed.
	Log(ctx context.Context, namespace, key string) ([]Entry, error)
}

// An Entry is one business write.
type Entry struct {
	Token     uint64
	Operation string
}

// An End is how the owner of the resource ends an atomic operation.
type End int

// The ends.
const (
	Commit   End = iota // what the guard answered stands; a refusal, too, is committed if the store can
	RollBack            // everything is undone after the guard has answered; the answer is returned
	Refuse              // the business write appends its entry and then fails with ErrBusiness, which is returned
)

var (
	// ErrBusiness is the refusal of a business write, see [Refuse].
	ErrBusiness = errors.New("guardtest: the business refuses")

	// ErrUnsupported is returned for what a store cannot do, and reported for what could
	// not be evaluated.
	ErrUnsupported = errors.New("guardtest: not supported by the store")
)

// Forbidden is a namespace that a store under test must refuse, see [Authorise].
const Forbidden = "forbidden"

// Authorise is the authorisation that a store under test gives its guard. It refuses
// the namespace [Forbidden] and no other.
func Authorise(_ context.Context, namespace, _ string) error {
	if namespace == Forbidden {
		return errors.New("guardtest: forbidden namespace")
	}
	return nil
}

// A Raiser can raise the highest token without a write, as resourceguard.Guard.Raise
// does.
type Raiser interface {
	Raise(ctx context.Context, f resourceguard.Fence) error
}

// A Looker can tell whether an operation was applied.
type Looker interface {
	Lookup(ctx context.Context, namespace, key, operation string) (resourceguard.Record, bool, error)
}

// A Reopener can open the same resource once more, as another process would. Stores
// that share nothing but the resource must judge alike.
type Reopener interface {
	Reopen(ctx context.Context) (Store, error)
}

// A Keeper tells whether a refused business write keeps the raise of its token. A
// store that is no Keeper keeps none.
type Keeper interface {
	KeepsRaise() bool
}
