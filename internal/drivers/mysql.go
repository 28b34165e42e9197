package drivers

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"iter"
	"log"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orbitkit/orbit/internal/sqldb"
)

const (
	// maxTransactions and maxPlain bound the connections that are open at one time: those
	// that run transactions, and those for statements by themselves.
	maxTransactions, maxPlain = 20, 12
	// A connection is renewed before proxies and the server's wait_timeout cut it, and so
	// that a failed-over primary is left behind soon.
	maxLifetime = 3 * time.Minute
	// maxIdle leaves a connection time enough before the server gives it up (maxSilence).
	maxIdle = 20 * time.Second

	defaultDial  = 5 * time.Second
	defaultWrite = 30 * time.Second
	// Longer than innodb_lock_wait_timeout (50 s by default): a statement that waits for a
	// lock gets the server's answer, not a cut connection.
	defaultRead = 75 * time.Second
)

func openMySQL(ctx context.Context, dsn string, patient bool) (*sqldb.DB, error) {
	of, err := connectorOf(dsn, patient)
	if err != nil {
		return nil, fmt.Errorf("database address: %w", err)
	}
	manual, err := of.forTransactions()
	if err != nil {
		return nil, fmt.Errorf("database address: %w", err)
	}
	pool := poolOf(of, maxPlain)
	if err := checkServer(ctx, pool); err != nil {
		pool.Close()
		return nil, fmt.Errorf("database at %s: %w", of.cfg.Addr, conceal(err, of.cfg.Passwd))
	}
	return sqldb.New(sqldb.MySQL, pool, pool).WithTransactionsOn(poolOf(manual, maxTransactions)), nil
}

// poolOf connects to nothing yet.
func poolOf(c *connector, most int) *sql.DB {
	pool := sql.OpenDB(c)
	pool.SetMaxOpenConns(most)
	pool.SetMaxIdleConns(most)
	pool.SetConnMaxLifetime(maxLifetime)
	pool.SetConnMaxIdleTime(maxIdle)
	return pool
}

// connectorOf reads a DSN and connects to nothing.
func connectorOf(dsn string, patient bool) (*connector, error) {
	cfg, err := mysqlConfig(dsn, patient)
	if err != nil {
		return nil, err
	}
	inner, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, dsnError(err, dsn)
	}
	return &connector{inner: inner, cfg: cfg, patient: patient}, nil
}

// forTransactions returns a connector for connections that run transactions only.
func (c *connector) forTransactions() (*connector, error) {
	other := *c
	other.manual, other.cfg = true, c.cfg.Clone()
	other.cfg.MultiStatements = true
	var err error
	other.inner, err = mysql.NewConnector(other.cfg)
	return &other, err
}

// mysqlConfig reads a DSN, refuses what would break Orbit's promises and fills defaults.
func mysqlConfig(dsn string, patient bool) (*mysql.Config, error) {
	cfg, err := parseDSN(dsn)
	if err != nil {
		return nil, dsnError(err, dsn)
	}
	if cfg.Net != "tcp" && cfg.Net != "tcp6" && cfg.Net != "unix" {
		return nil, errors.New("the DSN's network must be tcp, tcp6 or unix: want user:password@tcp(host:3306)/database")
	}
	if cfg.DBName == "" {
		return nil, errors.New("the DSN names no database: want user:password@tcp(host:3306)/database")
	}
	if err := refuseFlags(cfg); err != nil {
		return nil, err
	}
	if most := cfg.MaxAllowedPacket; most > 0 && most < sqldb.LeastPacket {
		return nil, fmt.Errorf("the DSN's maxAllowedPacket is %d: it must be at least %d, for a batch of 4 MiB, or left out", most, sqldb.LeastPacket)
	}
	if err := refuseCharsets(dsn); err != nil {
		return nil, err
	}
	cfg.InterpolateParams = true // one round trip instead of three
	cfg.Loc = time.UTC
	cfg.Logger = log.New(io.Discard, "", 0) // its lines would bypass the program's log
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultDial
	}
	if cfg.ReadTimeout == 0 && !patient {
		cfg.ReadTimeout = defaultRead
	}
	if cfg.WriteTimeout == 0 {
		cfg.WriteTimeout = defaultWrite
	}
	return cfg, nil
}

func refuseFlags(cfg *mysql.Config) error {
	flags := []struct {
		name, why string
		set       bool
	}{
		{"allowAllFiles", "a server could read any file of this machine", cfg.AllowAllFiles},
		{"allowOldPasswords", "the password could be recovered from the network", cfg.AllowOldPasswords},
		{"clientFoundRows", "Orbit counts changed rows", cfg.ClientFoundRows},
		{"columnsWithAlias", "Orbit reads columns by their names", cfg.ColumnsWithAlias},
		{"multiStatements", "Orbit sets it where it needs it", cfg.MultiStatements},
		{"rejectReadOnly", "the driver would send statements again by itself", cfg.RejectReadOnly},
	}
	for _, f := range flags {
		if f.set {
			return fmt.Errorf("the DSN must not set %s: %s", f.name, f.why)
		}
	}
	for _, variable := range []string{"transaction_isolation", "tx_isolation", "sql_mode", "time_zone", "autocommit"} {
		if _, set := cfg.Params[variable]; set {
			return fmt.Errorf("the DSN must not set %s: Orbit sets it for each connection", variable)
		}
	}
	return nil
}

// refuseCharsets allows UTF-8 only: the driver writes values into the statements, and in
// GBK, Big5 or Shift-JIS the last byte of a character can be a backslash that undoes the
// escaping. The driver itself looks at the collation alone.
func refuseCharsets(dsn string) error {
	for name, value := range parameters(dsn) {
		if name == "charset" && value != "utf8mb4" || name == "collation" && !strings.HasPrefix(value, "utf8mb4_") {
			return fmt.Errorf("the DSN's %s must be one of utf8mb4", name)
		}
	}
	return nil
}

// parameters yields the names and raw values of a DSN's parameters.
func parameters(dsn string) iter.Seq2[string, string] {
	_, query, _ := strings.Cut(dsn[strings.LastIndexByte(dsn, '/')+1:], "?")
	return func(yield func(string, string) bool) {
		for parameter := range strings.SplitSeq(query, "&") {
			if name, value, _ := strings.Cut(parameter, "="); !yield(name, value) {
				return
			}
		}
	}
}

// parseDSN is the driver's parser, which panics on the long-gone parameter strict.
func parseDSN(dsn string) (cfg *mysql.Config, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("parameter no longer supported")
		}
	}()
	return mysql.ParseDSN(dsn)
}

// driverParameters are the parameters whose values the driver checks.
var driverParameters = map[string]bool{
	"allowAllFiles": true, "allowCleartextPasswords": true, "allowFallbackToPlaintext": true,
	"allowNativePasswords": true, "allowOldPasswords": true, "checkConnLiveness": true,
	"clientFoundRows": true, "columnsWithAlias": true, "compress": true, "connectionAttributes": true,
	"interpolateParams": true, "loc": true, "maxAllowedPacket": true, "multiStatements": true,
	"parseTime": true, "readTimeout": true, "rejectReadOnly": true, "serverPubKey": true,
	"strict": true, "timeTruncate": true, "timeout": true, "tls": true, "writeTimeout": true,
}

// dsnError says what is wrong with a DSN in words that cannot hold a part of it: the
// driver quotes what it could not read, and in a DSN with a slip that may be the password.
func dsnError(err error, dsn string) error {
	if strings.HasPrefix(err.Error(), "invalid DSN: ") { // the driver's fixed texts
		return err
	}
	for name, value := range parameters(dsn) {
		if _, err := parseDSN("/?" + name + "=" + value); err != nil && driverParameters[name] {
			return fmt.Errorf("the value of the DSN's parameter %s is not valid", name)
		}
	}
	return errors.New("the DSN is not of the form user:password@tcp(host:3306)/database")
}

// A connector prepares every new connection for Orbit.
type connector struct {
	inner   driver.Connector
	cfg     *mysql.Config
	patient bool
	manual  bool // its connections run transactions only
}

// MySQL has transaction_isolation, MariaDB before 11.1 only tx_isolation; each server
// reads the comment that is written for it. So one round trip does for both.
const setSession = `SET SESSION /*!80000 transaction_isolation */ /*M!100000 tx_isolation */ = 'READ-COMMITTED',
 SESSION sql_mode = 'STRICT_TRANS_TABLES,STRICT_ALL_TABLES,ONLY_FULL_GROUP_BY,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION',
 SESSION time_zone = '+00:00'`

// maxSilence has the server give up a connection that says nothing for 30 s. A process that is
// stopped inside a transaction, or whose machine is gone, would else keep its locks until the
// server misses it: eight hours by default.
const maxSilence = ", SESSION wait_timeout = 30"

// Connect implements [driver.Connector].
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.inner.Connect(ctx)
	if err != nil {
		return nil, err
	}
	set := setSession
	if !c.patient {
		set += maxSilence
	}
	if c.manual {
		set += autocommitOff
	}
	if _, err := conn.(driver.ExecerContext).ExecContext(ctx, set, nil); err != nil {
		conn.Close()
		return nil, fmt.Errorf("set isolation level, sql mode, time zone and wait timeout: %w", err)
	}
	if c.manual {
		return &manualConn{mysqlConn: conn.(mysqlConn)}, nil
	}
	return conn, nil
}

// Driver implements [driver.Connector].
func (c *connector) Driver() driver.Driver { return c.inner.Driver() }

// checkServer refuses servers older than Orbit's SQL (AMB-059).
func checkServer(ctx context.Context, pool *sql.DB) error {
	var version string
	if err := pool.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
		return err
	}
	return checkVersion(version)
}

func checkVersion(version string) error {
	product, oldest := "MySQL", release{8, 0, 16}
	if strings.Contains(strings.ToLower(version), "mariadb") {
		product, oldest = "MariaDB", release{10, 6, 0}
	}
	found, ok := parseRelease(version)
	if !ok {
		return fmt.Errorf("server version %q is not understood", version)
	}
	if found.before(oldest) {
		return fmt.Errorf("%s %s is too old: Orbit needs %s or newer", product, found, oldest)
	}
	return nil
}

type release [3]int

func (r release) String() string { return fmt.Sprintf("%d.%d.%d", r[0], r[1], r[2]) }

func (r release) before(other release) bool {
	for i := range r {
		if r[i] != other[i] {
			return r[i] < other[i]
		}
	}
	return false
}

var leadingRelease = regexp.MustCompile(`^(?:5\.5\.5-)?([0-9]+)\.([0-9]+)\.([0-9]+)`) // MariaDB may pose as 5.5.5

func parseRelease(version string) (r release, ok bool) {
	m := leadingRelease.FindStringSubmatch(version)
	if m == nil {
		return r, false
	}
	for i := range r {
		n, err := strconv.Atoi(m[i+1])
		if err != nil {
			return r, false
		}
		r[i] = n
	}
	return r, true
}
