//go:build linux

package faults

import (
	"database/sql"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/drivers"
	"github.com/orbitkit/orbit/internal/freeport"
	"github.com/orbitkit/orbit/migrations"
)

// A relayedShop is a shop whose business database is a server of its own, which a line
// leads to, and relays that have the rights of the guide and no others.
type relayedShop struct {
	*shop
	database *database
	line     *line
	relays   []*relayProcess
}

// onOwnBusinessServers runs f at the same time with a business database server of each
// engine. The task server's database is another one.
func onOwnBusinessServers(t *testing.T, clock bool, f func(s *relayedShop)) {
	t.Helper()
	t.Parallel()
	for _, engine := range []string{dbtest.MySQL, dbtest.MariaDB} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			d := startDatabase(t, engine, clock)
			made := d.openAs("shop", migrations.Outbox)
			l := startLine(t, net.JoinHostPort("127.0.0.1", strconv.Itoa(d.port)))
			business := &dbtest.DB{Engine: engine, Address: through(t, made.Address, l)}
			var err error
			if business.DB, err = drivers.Open(t.Context(), business.Address); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { business.Close() })
			s := &relayedShop{shop: newShop(newScene(t, dbtest.Open(t, engine, migrations.Server)), business, 2), database: d, line: l}
			s.root("CREATE USER relay@'127.0.0.1' IDENTIFIED BY 'relay'", "GRANT SELECT, INSERT, UPDATE, DELETE ON shop.* TO relay@'127.0.0.1'")
			n := s.startNode("node")
			for i := range 2 {
				s.relays = append(s.relays, s.startRelay(fmt.Sprintf("relay-%d", i), n.url, func(c *relayConfig) {
					c.Database = "mysql:relay:relay@tcp(" + l.addr + ")/shop"
				}))
			}
			s.delivers("at first")
			f(s)
			for _, r := range s.relays {
				r.stop(s.shop)
			}
			s.check()
		})
	}
}

// root runs statements on the business server as its owner.
func (s *relayedShop) root(statements ...string) {
	s.Helper()
	for _, statement := range statements {
		if _, err := s.business.Write().ExecContext(s.Context(), statement); err != nil {
			s.Fatalf("%s: %v", statement, err)
		}
	}
}

// delivers holds the relays to work.
func (s *relayedShop) delivers(when string) {
	s.Helper()
	s.enqueue(s.good(), s.good(), s.stray())
	s.settled()
	if s.Failed() {
		s.Fatalf("rows are not settled %s", when)
	}
}

// meets waits until a relay tells of an error that it had not told of before.
func (s *relayedShop) meets(text string, before int) {
	s.Helper()
	poll(s.T, "a relay to meet "+text, func() bool { return s.told(text) > before })
}

func (s *relayedShop) told(text string) (n int) {
	for _, r := range s.relays {
		n += strings.Count(r.log.String(), text)
	}
	return n
}

// The issue, "database restarted, made read-only (1290), out of connections (1040), failing
// over to a replica": relays that live through all of it go on by themselves each time.
// Rows that were accepted while nothing could be written are known from the repeat.
func TestRelaysOutliveWhatHappensToTheDatabase(t *testing.T) { // REL-007, REL-015, REL-017, OUT-013, REF-OUTBOX-001
	onOwnBusinessServers(t, false, func(s *relayedShop) {
		s.restartBusiness()
		s.delivers("after a restart")
		s.makeReadOnly()
		s.delivers("after the database was read-only")
		s.exhaustConnections()
		s.delivers("after the database was out of connections")
		s.failOver()
		s.delivers("after the fail-over")
	})
}

func (s *relayedShop) restartBusiness() {
	s.Helper()
	before := s.told("database fails")
	s.database.kill()
	s.meets("database fails", before)
	s.database.start()
}

// makeReadOnly lets rows come while no relay can write, as a replica gets them.
func (s *relayedShop) makeReadOnly() {
	s.Helper()
	before := s.told("Error 1290")
	s.root("SET GLOBAL read_only = 1")
	s.enqueue(s.good(), s.good()) // its owner may
	s.meets("Error 1290", before)
	s.root("SET GLOBAL read_only = 0")
}

// exhaustConnections cuts the relays off while others hold every connection.
func (s *relayedShop) exhaustConnections() {
	s.Helper()
	s.enqueue(s.good())
	s.root("SET GLOBAL max_connections = 12")
	hogs, err := sql.Open("mysql", "relay:relay@tcp(127.0.0.1:"+strconv.Itoa(s.database.port)+")/shop")
	if err != nil {
		s.Fatal(err)
	}
	hogs.SetMaxIdleConns(100)
	s.line.cut()
	for range 100 {
		if _, err = hogs.Conn(s.Context()); err != nil {
			break
		}
	}
	before := int64(-1)
	poll(s.T, "a relay to be refused for too many connections", func() bool {
		n, err := s.refusedConnections()
		if err == nil && before < 0 {
			before = n
		}
		return err == nil && n > before
	})
	hogs.Close()
	s.root("SET GLOBAL max_connections = 151")
}

// refusedConnections returns how many connections the server has refused with error 1040.
// The test's own may be among them.
func (s *relayedShop) refusedConnections() (n int64, err error) {
	s.Helper()
	var name string
	err = s.business.Read().QueryRowContext(s.Context(), "SHOW GLOBAL STATUS LIKE 'Connection_errors_max_connections'").Scan(&name, &n)
	return n, err
}

// failOver kills the server, and leads its clients to a copy of all that it had committed,
// which is read-only until it is promoted.
func (s *relayedShop) failOver() {
	s.Helper()
	s.enqueue(s.good(), s.good())
	s.database.kill()
	replica := s.database.copy("--read-only=1")
	replica.start()
	s.line.point(net.JoinHostPort("127.0.0.1", strconv.Itoa(replica.port)))
	s.enqueue(s.good(), s.good())
	poll(s.T, "the leases to end that nobody can renew", func() bool {
		return s.businessCount("SELECT COUNT(*) FROM orbit_outbox_lease WHERE expires_at > "+s.business.Dialect().Clock) == 0
	})
	s.root("SET GLOBAL read_only = 0")
}

// copy makes a server on a copy of what a server, which must not run, has committed.
func (d *database) copy(flags ...string) *database {
	d.Helper()
	dir := d.dir + "-copy"
	d.Cleanup(func() { os.RemoveAll(dir) })
	if text, err := exec.Command("cp", "-a", d.dir, dir).CombinedOutput(); err != nil {
		d.Fatalf("copy the data folder: %v\n%s", err, text)
	}
	os.Remove(filepath.Join(dir, "s"))
	c := &database{T: d.T, engine: d.engine, dir: dir, port: freeport.Port(d.T), secret: d.secret}
	for _, word := range d.command {
		c.command = append(c.command, strings.ReplaceAll(word, d.dir, dir))
	}
	c.command = append(c.command, flags...)
	d.Cleanup(func() {
		if c.cmd != nil && c.cmd.Process != nil {
			c.kill()
		}
	})
	return c
}

// The issue, "time zone and clock jumps": the business database's clock jumps an hour ahead
// and back while rows come. Living relays go on; the shards of one that dies before the jump
// back are led again when its leases have ended by that clock, and not a row is lost.
func TestRelaysOutliveJumpsOfTheDatabaseClock(t *testing.T) { // REL-015, REL-016, REL-017, OUT-013
	onOwnBusinessServers(t, true, func(s *relayedShop) {
		s.database.jump(time.Hour)
		s.delivers("after the jump ahead")
		s.database.jump(0)
		s.delivers("after the jump back")

		s.database.jump(time.Hour)
		s.delivers("after another jump ahead")
		for i, r := range s.relays {
			r.kill(s.T)
			s.relays[i] = s.startRelay(r.name+"-again", r.config.URL, func(c *relayConfig) { c.Database = r.config.Database })
		}
		s.database.jump(0)
		s.enqueue(s.good(), s.stray())
		s.database.jump(time.Hour + 3*time.Second) // the clock has come to where the leases end
		s.settled()
		poll(s.T, "each shard to be taken over, one without rows too", func() bool {
			return s.businessCount("SELECT MIN(epoch) FROM orbit_outbox_lease") > 1
		})
	})
}
