package drivers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	_ "modernc.org/sqlite" // registers "sqlite"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// Readers share the page cache of the kernel but not SQLite's own, so their number is
// memory.
const maxReaders = 8

// openSQLite opens one write connection, whose transactions hold the write lock from
// their first statement, and a pool that can only read.
func openSQLite(ctx context.Context, path string, create bool) (*sqldb.DB, error) {
	path, err := sqlitePath(path)
	if err != nil {
		return nil, fmt.Errorf("database address: %w", err)
	}
	if create {
		err = createPrivate(path)
	} else {
		err = mustExist(path)
	}
	if err != nil {
		return nil, fmt.Errorf("database file: %w", err)
	}
	write, err := sql.Open("sqlite", sqliteDSN(path, "immediate", "journal_mode(WAL)", "synchronous(FULL)"))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	write.SetMaxOpenConns(1)
	write.SetMaxIdleConns(1)
	if err := enterWAL(ctx, write); err != nil {
		write.Close()
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	read, err := sql.Open("sqlite", sqliteDSN(path, "deferred", "query_only(1)"))
	if err != nil {
		write.Close()
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	read.SetMaxOpenConns(maxReaders)
	read.SetMaxIdleConns(maxReaders)
	read.SetConnMaxIdleTime(time.Minute)
	return sqldb.New(sqldb.SQLite, write, read), nil
}

func sqlitePath(path string) (string, error) {
	switch {
	case path == "":
		return "", errors.New("sqlite: needs the path of a file")
	case strings.Contains(path, ":memory:"), strings.HasPrefix(path, "file:"):
		return "", errors.New("sqlite: needs the plain path of a file, not a memory database or a URI")
	case strings.ContainsRune(path, 0):
		return "", errors.New("sqlite: the path must not contain a NUL byte")
	}
	return filepath.Abs(path)
}

// createPrivate creates the file for its owner alone; SQLite gives the same mode to the
// files beside it.
func createPrivate(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		var pathErr *fs.PathError
		if errors.As(err, &pathErr) && errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: its folder does not exist", path)
		}
		return err
	}
	return f.Close()
}

// mustExist tells how the file is made. That SQLite does not make it is for the mode of
// the DSN to see to.
func mustExist(path string) error {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return missingFile(path)
	}
	return err
}

// A missingFile is the path of a database that is not there. It is [fs.ErrNotExist].
type missingFile string

// Error implements error.
func (m missingFile) Error() string {
	return fmt.Sprintf("there is no %s: check the path, orbit-migrate up makes it", string(m))
}

// Is implements what [errors.Is] asks for.
func (m missingFile) Is(target error) bool { return target == fs.ErrNotExist }

func sqliteDSN(path, txlock string, pragmas ...string) string {
	query := url.Values{"mode": {"rw"}, "_txlock": {txlock}, "_busy_timeout": {"5000"}, "_pragma": pragmas}
	u := url.URL{Scheme: "file", Path: path, RawQuery: query.Encode()} // escapes ?, # and % in the path
	return u.String()
}

// enterWAL opens the first connection, which puts a new file into WAL mode. Processes
// that do so at the same moment can meet "busy" at once, busy_timeout or not.
func enterWAL(ctx context.Context, write *sql.DB) error {
	const tries = 50
	var err error
	for range tries {
		var mode string
		err = write.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode)
		if err == nil && mode != "wal" {
			return fmt.Errorf("journal mode is %s, want wal: the file's file system may not support it", mode)
		}
		if err == nil || !sqldb.SQLite.Transient(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return err
}
