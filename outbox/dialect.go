package outbox

import (
	"net/url"
	"strings"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// A Dialect tells the engine of a business database.
type Dialect = sqldb.Dialect

var (
	// MySQL is MySQL 8.0.16+ and MariaDB 10.6+.
	MySQL = sqldb.MySQL
	// SQLite is SQLite 3.42+.
	SQLite = sqldb.SQLite
)

// SQLiteDSN returns a data source name for the file at path, for the driver
// modernc.org/sqlite (name "sqlite"): write-ahead log, synchronous=FULL, five seconds
// of patience with other writers, and transactions that begin IMMEDIATE. Opened
// another way a transaction that has read may not be able to write: [Outbox.Enqueue]
// then returns [ErrRetry].
func SQLiteDSN(path string) string {
	name := strings.TrimPrefix((&url.URL{Path: path}).EscapedPath(), "./")
	if strings.HasPrefix(name, "/") {
		name = "//" + name // an empty host, which a second slash of the path could be taken for
	}
	return "file:" + name +
		"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=immediate"
}
