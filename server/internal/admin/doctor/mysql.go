package doctor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/orbitkit/orbit/internal/sqldb"
)

func (e *examiner) mysqlChecks() []check {
	return []check{
		{name: "engine", look: e.mysqlEngine},
		{name: "isolation", look: e.isolation},
		{name: "strict mode", look: e.strictMode},
		{name: "durability", look: e.mysqlDurability},
		{name: "binary log", look: e.binaryLog},
		{name: "packet size", look: e.packetSize},
		{name: "writable", look: e.writable},
		{name: "replica", look: e.replica, needs: "REPLICATION CLIENT (MariaDB: SLAVE MONITOR)"},
		{name: "lock wait", look: e.lockWait},
		{name: "connections", look: e.connections},
	}
}

// variable reads a variable of our own session; those that the server does not have are
// empty. It needs no right.
func (e *examiner) variable(ctx context.Context, name string) (string, error) {
	if e.vars == nil {
		vars := map[string]string{}
		err := sqldb.EachRow(ctx, e.db.Write(), "SHOW SESSION VARIABLES", nil, func(scan func(...any) error) error {
			var name, value string
			err := scan(&name, &value)
			vars[strings.ToLower(name)] = value
			return err
		})
		if err != nil {
			return "", err
		}
		e.vars = vars
	}
	return e.vars[name], nil
}

func (e *examiner) number(ctx context.Context, name string) (int64, error) {
	text, err := e.variable(ctx, name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the server does not tell %s as a number", name)
	}
	return n, nil
}

func (e *examiner) isOn(ctx context.Context, name string) (bool, error) {
	text, err := e.variable(ctx, name)
	return text == "1" || strings.EqualFold(text, "ON"), err
}

// Releases before these were refused when the database was opened (AMB-059).
func (e *examiner) mysqlEngine(ctx context.Context) ([]Finding, error) {
	version, err := e.variable(ctx, "version")
	if err != nil {
		return nil, err
	}
	product, known := "MySQL", 9
	if strings.Contains(strings.ToLower(version), "mariadb") {
		product, known = "MariaDB", 12
	}
	major, _, _ := strings.Cut(strings.TrimPrefix(version, "5.5.5-"), ".")
	if n, err := strconv.Atoi(major); err == nil && n > known {
		return warn("see whether a newer release of Orbit names it", "%s %s is newer than what this release was tested on", product, version), nil
	}
	return ok("%s %s", product, version), nil
}

func (e *examiner) isolation(ctx context.Context) ([]Finding, error) {
	level, err := e.variable(ctx, "transaction_isolation")
	if err == nil && level == "" {
		level, err = e.variable(ctx, "tx_isolation") // MariaDB before 11.1
	}
	switch {
	case err != nil:
		return nil, err
	case level != "READ-COMMITTED":
		return fail("look for a proxy or an init_connect that changes sessions", "our connections run at %s, want READ-COMMITTED", level), nil
	}
	return ok("our connections run at READ-COMMITTED"), nil
}

func (e *examiner) strictMode(ctx context.Context) ([]Finding, error) {
	mode, err := e.variable(ctx, "sql_mode")
	if err != nil {
		return nil, err
	}
	if !slices.Contains(strings.Split(mode, ","), "STRICT_ALL_TABLES") {
		return fail("look for a proxy or an init_connect that changes sessions", "our connections are not strict: values could be cut without an error"), nil
	}
	return ok("our connections refuse values that do not fit"), nil
}

func (e *examiner) mysqlDurability(ctx context.Context) ([]Finding, error) {
	flush, err := e.number(ctx, "innodb_flush_log_at_trx_commit")
	if err != nil {
		return nil, err
	}
	if flush != 1 {
		return fail("set innodb_flush_log_at_trx_commit = 1",
			"innodb_flush_log_at_trx_commit is %d: a crash can lose tasks that were answered as accepted", flush), nil
	}
	return ok("every commit is on disk before it is answered"), nil
}

func (e *examiner) binaryLog(ctx context.Context) ([]Finding, error) {
	on, err := e.isOn(ctx, "log_bin")
	if err != nil {
		return nil, err
	}
	if !on {
		return ok("no binary log"), nil
	}
	every, err := e.number(ctx, "sync_binlog")
	if err != nil {
		return nil, err
	}
	if every != 1 {
		return warn("set sync_binlog = 1", "sync_binlog is %d: after a crash replicas and point-in-time recovery can lack accepted tasks", every), nil
	}
	return ok("the binary log is on disk with every commit"), nil
}

const goodPacket = 16 << 20

func (e *examiner) packetSize(ctx context.Context) ([]Finding, error) {
	n, err := e.number(ctx, "max_allowed_packet")
	switch {
	case err != nil:
		return nil, err
	case n < sqldb.LeastPacket:
		return fail("set max_allowed_packet = 64M", "max_allowed_packet is %d bytes: a batch of 4 MiB does not fit", n), nil
	case n < goodPacket:
		return warn("set max_allowed_packet = 64M", "max_allowed_packet is %d bytes: submits that share a transaction may not fit, and are sent again one by one", n), nil
	}
	return ok("max_allowed_packet is %d bytes", n), nil
}

func (e *examiner) writable(ctx context.Context) ([]Finding, error) {
	for _, name := range []string{"read_only", "super_read_only", "innodb_read_only", "transaction_read_only", "tx_read_only"} {
		on, err := e.isOn(ctx, name)
		if err != nil {
			return nil, err
		}
		if on {
			return fail("point Orbit at the primary", "%s is on: this server takes no writes", name), nil
		}
	}
	return ok("the server takes writes"), nil
}

func (e *examiner) replica(ctx context.Context) ([]Finding, error) {
	statement := "SHOW REPLICA STATUS"
	if version, err := e.variable(ctx, "version"); err != nil || strings.HasPrefix(version, "8.0.") {
		statement = "SHOW SLAVE STATUS" // MySQL before 8.0.22
	}
	rows, err := e.db.Write().QueryContext(ctx, statement)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	if rows.Next() {
		return fail("point Orbit at the primary; after a fail-over to this server end its replication",
			"this server is a replica of another one: what Orbit writes here can be overtaken"), nil
	}
	return ok("this server follows no other"), rows.Err()
}

// The driver gives an answer 75 s.
const longestLockWait = 60

func (e *examiner) lockWait(ctx context.Context) ([]Finding, error) {
	n, err := e.number(ctx, "innodb_lock_wait_timeout")
	switch {
	case err != nil:
		return nil, err
	case n > longestLockWait:
		return warn("set innodb_lock_wait_timeout to 50 or less",
			"innodb_lock_wait_timeout is %d s: connections are cut before the server gives up", n), nil
	}
	return ok("innodb_lock_wait_timeout is %d s", n), nil
}

func (e *examiner) connections(ctx context.Context) ([]Finding, error) {
	most, err := e.number(ctx, "max_connections")
	if err != nil {
		return nil, err
	}
	pool := int64(e.db.MaxConnections())
	switch {
	case most < pool:
		return fail(fmt.Sprintf("set max_connections to at least %d for each node, and some for others", pool),
			"max_connections is %d: one node alone opens up to %d", most, pool), nil
	case most < 2*pool:
		return warn(fmt.Sprintf("set max_connections to at least %d for each node, and some for others", pool),
			"max_connections is %d: there is no room for a second node, which opens up to %d", most, pool), nil
	}
	return ok("max_connections is %d, a node opens up to %d", most, pool), nil
}
