package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/admin"
	"github.com/orbitkit/orbit/server/internal/auth"
)

// A BootstrapRequest asks for the first application, namespace, queue and credential.
type BootstrapRequest = admin.Bootstrap

// A CredentialRequest asks for a further credential.
type CredentialRequest = admin.CredentialRequest

// An InvalidError refuses a request before anything is written.
type InvalidError = admin.InvalidError

var (
	// ErrExists reports that the namespace of a bootstrap exists. Nothing was changed.
	ErrExists = admin.ErrExists
	// ErrMissing reports that what a request refers to does not exist. Nothing was
	// changed.
	ErrMissing = admin.ErrMissing
	// ErrNoPlace reports that a credentials file cannot be made where it was asked for.
	// Nothing was changed.
	ErrNoPlace = errors.New("credentials file")
)

// KnownPermissions returns every permission that a credential can have, sorted.
func KnownPermissions() []string { return auth.KnownPermissions() }

// Bootstrap makes what r asks for and returns the credential.
func Bootstrap(ctx context.Context, db *sqldb.DB, r BootstrapRequest) (orbit.Credentials, error) {
	return r.Run(ctx, db)
}

// CreateCredential makes a credential and returns it.
func CreateCredential(ctx context.Context, db *sqldb.DB, r CredentialRequest) (orbit.Credentials, error) {
	return r.Run(ctx, db)
}

// CredentialID returns the id of the credential that a token belongs to. It is no secret.
func CredentialID(token string) (sqldb.ID, error) {
	const from, to = len("orbit_"), len("orbit_") + 32
	if len(token) < to {
		return sqldb.ID{}, errors.New("token is malformed")
	}
	return sqldb.ParseID(token[from:to])
}

// CreateFile lets create make a credential and writes it to a new file at path that only
// its owner can read (CLI-016). That the file can be written is tried before: a token is
// shown once, so a credential without its file is of no use and is revoked. An existing
// file is refused with an error that wraps [os.ErrExist]; this and any other place where
// no file can be made is an [ErrNoPlace].
func CreateFile(ctx context.Context, db *sqldb.DB, path string, create func() (orbit.Credentials, error)) (orbit.Credentials, error) {
	temporary, err := reserve(path)
	if err != nil {
		return orbit.Credentials{}, fmt.Errorf("%w: %w", ErrNoPlace, err)
	}
	defer os.Remove(temporary)
	c, err := create()
	if err != nil {
		return orbit.Credentials{}, err
	}
	if err := publish(temporary, path, c); err != nil {
		return orbit.Credentials{}, errors.Join(fmt.Errorf("credentials file: %w", err), withdraw(ctx, db, c))
	}
	return c, nil
}

// reserve returns the name of a file beside path that can be made.
func reserve(path string) (string, error) {
	if _, err := os.Lstat(path); err == nil {
		return "", fmt.Errorf("%s: %w", path, os.ErrExist)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".orbit-credentials-")
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, bare(err))
	}
	return f.Name(), errors.Join(f.Close(), os.Remove(f.Name()))
}

// publish writes the file whole and then gives it its name, which must be free.
func publish(temporary, path string, c orbit.Credentials) error {
	if err := orbit.SaveCredentials(temporary, c); err != nil {
		return err
	}
	err := os.Link(temporary, path)
	if errors.Is(err, syscall.EPERM) || errors.Is(err, errors.ErrUnsupported) {
		return orbit.SaveCredentials(path, c) // the file system has no links
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, bare(err))
	}
	return nil
}

func withdraw(ctx context.Context, db *sqldb.DB, c orbit.Credentials) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	id, err := CredentialID(c.Token)
	if err != nil {
		return err
	}
	return admin.NewOperator(db, "orbit").Revoke(ctx, id, "its credentials file could not be written")
}

// bare drops the paths from an error of os; the caller names the file that people know.
func bare(err error) error {
	var path *os.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	}
	return err
}
