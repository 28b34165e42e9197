package migrations

import (
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// A Set is a schema of its own, with its own count of steps.
type Set string

// The sets, by the database that they belong to (MIG-015).
const (
	Server Set = "server" // the task server's database
	Outbox Set = "outbox" // a business database: tables orbit_outbox*
	Guard  Set = "guard"  // a resource owner's database: tables orbit_guard_*
)

// Sets returns all sets.
func Sets() []Set { return []Set{Server, Outbox, Guard} }

// ParseSet returns the set called name.
func ParseSet(name string) (Set, error) {
	for _, s := range Sets() {
		if string(s) == name {
			return s, nil
		}
	}
	return "", fmt.Errorf("unknown set %q: want server, outbox or guard", name)
}

//go:embed */*/*.sql
var files embed.FS

// A step is one numbered file.
type step struct {
	number     int
	name       string
	checksum   [sha256.Size]byte
	additive   bool
	statements []statement
}

func (s step) String() string { return fmt.Sprintf("%06d_%s", s.number, s.name) }

// Latest returns the number of the newest step of set for the dialect.
func Latest(set Set, d *sqldb.Dialect) (int, error) {
	steps, err := load(files, set, d)
	if err != nil {
		return 0, err
	}
	return len(steps), nil
}

var fileName = regexp.MustCompile(`^([0-9]{6})_([a-z0-9_]+)\.up\.sql$`)

// load reads the steps of a set in order. Numbers are unique and without gaps, so a
// step's number is its place (MIG-018).
func load(files fs.FS, set Set, d *sqldb.Dialect) ([]step, error) {
	dir := path.Join(string(set), d.Name)
	entries, err := fs.ReadDir(files, dir) // sorted by name, so by number
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("migrations: set %s has no steps for %s", set, d.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("migrations: read set %s: %w", set, err)
	}
	var steps []step
	for _, e := range entries {
		s, err := readStep(files, path.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		if s.number != len(steps)+1 {
			return nil, fmt.Errorf("migrations: %s follows step %06d: numbers must be unique and without gaps", path.Join(dir, e.Name()), len(steps))
		}
		steps = append(steps, s)
	}
	return steps, nil
}

func readStep(files fs.FS, file string) (step, error) {
	m := fileName.FindStringSubmatch(path.Base(file))
	if m == nil {
		return step{}, fmt.Errorf("migrations: %s: want a name of the form NNNNNN_name.up.sql", file)
	}
	number, err := strconv.Atoi(m[1])
	if err != nil {
		return step{}, fmt.Errorf("migrations: %s: %w", file, err)
	}
	text, err := fs.ReadFile(files, file)
	if err != nil {
		return step{}, fmt.Errorf("migrations: %w", err)
	}
	statements, err := split(string(text))
	if err != nil {
		return step{}, fmt.Errorf("migrations: %s: %w", file, err)
	}
	return step{
		number:     number,
		name:       m[2],
		checksum:   sha256.Sum256(text),
		additive:   strings.HasPrefix(string(text), "-- additive:"),
		statements: statements,
	}, nil
}
