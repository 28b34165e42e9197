//go:build linux

package faults

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/drivers"
	"github.com/orbitkit/orbit/internal/freeport"
	"github.com/orbitkit/orbit/migrations"
)

// A database is a MySQL or MariaDB server of the test's own: it can be killed, and its
// clock set. Every commit of it is flushed, as in production.
type database struct {
	*testing.T
	engine  string
	dir     string
	clock   string // the file that tells its clock; empty if that is the machine's
	command []string
	port    int
	secret  string

	cmd   *exec.Cmd
	log   lines
	ended chan struct{}
}

// onOwnServers runs f at the same time with a server of each engine and a scene on it.
func onOwnServers(t *testing.T, clock bool, f func(s *scene, d *database)) {
	t.Helper()
	t.Parallel()
	for _, engine := range []string{dbtest.MySQL, dbtest.MariaDB} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			d := startDatabase(t, engine, clock)
			f(newScene(t, d.open()), d)
		})
	}
}

// startDatabase makes a server and starts it. It skips the test where the tests of that
// engine are skipped.
func startDatabase(t *testing.T, engine string, clock bool) *database {
	t.Helper()
	d := &database{T: t, engine: engine, secret: rand.Text()}
	dbtest.NeedServer(t, engine)
	var err error
	if d.dir, err = os.MkdirTemp("/dev/shm", "orbit-faults-"); err != nil {
		d.dir = t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(d.dir) })
	if clock {
		d.clock = filepath.Join(d.dir, "clock")
		d.jump(0)
	}
	if err := os.Mkdir(d.temporary(), 0o700); err != nil {
		t.Fatal(err)
	}
	d.initialise()
	d.port = freeport.Port(t)
	d.start()
	t.Cleanup(d.kill)
	return d
}

// initialise makes the data folder, and the command that serves it.
func (d *database) initialise() {
	d.Helper()
	var user []string
	if os.Getuid() == 0 {
		user = []string{"--user=root"}
	}
	data := filepath.Join(d.dir, "data")
	var prepare []string
	if d.engine == dbtest.MariaDB {
		server, err := exec.LookPath("mariadbd")
		if err != nil {
			server = "/usr/sbin/mariadbd"
		}
		d.command = append([]string{server, "--no-defaults", "--skip-log-bin"}, user...)
		prepare = append([]string{"mariadb-install-db", "--no-defaults", "--datadir=" + data, "--auth-root-authentication-method=normal", "--skip-test-db"}, user...)
	} else {
		found, err := exec.Command("../../scripts/mysql-server.sh").Output()
		if err != nil {
			d.Fatalf("find mysqld: %v", err)
		}
		words, base, _ := strings.Cut(strings.TrimSuffix(string(found), "\n"), "\n")
		d.command = append(strings.Split(strings.Trim(words, "\t"), "\t"), append([]string{"--no-defaults"}, user...)...)
		if base != "" {
			d.command = append(d.command, "--basedir="+base, "--lc-messages-dir="+base+"/share/mysql", "--character-sets-dir="+base+"/share/mysql/charsets")
		}
		d.command = append(d.command, "--secure-file-priv="+d.dir, "--disable-log-bin", "--mysqlx=OFF")
		prepare = append(slices.Clone(d.command), "--initialize-insecure", "--datadir="+data)
	}
	d.prepare(prepare)
	init := fmt.Sprintf("CREATE USER IF NOT EXISTS 'orbit'@'127.0.0.1' IDENTIFIED BY '%s';\nGRANT ALL PRIVILEGES ON *.* TO 'orbit'@'127.0.0.1' WITH GRANT OPTION;\n", d.secret)
	if err := os.WriteFile(filepath.Join(d.dir, "init.sql"), []byte(init), 0o600); err != nil {
		d.Fatal(err)
	}
	d.command = append(d.command, "--datadir="+data, fmt.Sprintf("--init-file=%s/init.sql", d.dir), fmt.Sprintf("--socket=%s/s", d.dir),
		fmt.Sprintf("--pid-file=%s/pid", d.dir), "--bind-address=127.0.0.1", "--skip-name-resolve", "--innodb-flush-log-at-trx-commit=1")
}

// prepare makes the data folder.
func (d *database) prepare(command []string) {
	d.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = d.environment()
	if text, err := cmd.CombinedOutput(); err != nil {
		d.Fatalf("make a data folder: %v\n%s", err, text)
	}
}

// temporary is the server's folder for temporary files. A MariaDB that starts removes all
// temporary tables that it finds there, also those of a neighbour that is running, which
// fails or crashes then.
func (d *database) temporary() string { return filepath.Join(d.dir, "tmp") }

func (d *database) environment() []string { return append(os.Environ(), "TMPDIR="+d.temporary()) }

// start starts the server, which must not run, at its address and waits until it answers.
func (d *database) start() {
	d.Helper()
	d.launch()
	poll(d.T, d.engine+" to answer", func() bool {
		select {
		case <-d.ended:
			d.Fatalf("%s ended: %v\n%s", d.engine, d.cmd.ProcessState, d.log.tail())
		default:
		}
		return d.answers()
	})
}

func (d *database) launch() {
	d.Helper()
	d.cmd = exec.Command(d.command[0], append(d.command[1:], fmt.Sprintf("--port=%d", d.port))...)
	d.cmd.Stdout, d.cmd.Stderr = &d.log, &d.log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	d.cmd.Env = d.environment()
	if d.clock != "" {
		d.cmd.Env = append(d.cmd.Env, "LD_PRELOAD="+libfaketime(d.T), "FAKETIME_TIMESTAMP_FILE="+d.clock, "FAKETIME_NO_CACHE=1",
			"FAKETIME_DONT_FAKE_MONOTONIC=1", "FAKETIME_FORCE_MONOTONIC_FIX=0")
	}
	if err := d.cmd.Start(); err != nil {
		d.Fatalf("start %s: %v", d.engine, err)
	}
	cmd, ended := d.cmd, make(chan struct{})
	d.ended = ended
	go func() {
		cmd.Wait()
		close(ended)
	}()
}

func (d *database) dsn(name string) string {
	return fmt.Sprintf("orbit:%s@tcp(127.0.0.1:%d)/%s", d.secret, d.port, name)
}

func (d *database) answers() bool {
	db, err := sql.Open("mysql", d.dsn("")+"?timeout=2s&readTimeout=2s")
	if err != nil {
		d.Fatal(err)
	}
	defer db.Close()
	_, err = db.Exec("CREATE DATABASE IF NOT EXISTS orbit")
	return err == nil
}

// kill ends the server with SIGKILL, if it runs.
func (d *database) kill() {
	d.cmd.Process.Kill()
	<-d.ended
}

// libfaketime finds the library that gives a process another clock.
func libfaketime(t *testing.T) string {
	t.Helper()
	for _, pattern := range []string{"/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib/faketime/libfaketimeMT.so.1", "/usr/lib64/faketime/libfaketimeMT.so.1"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return found[0]
		}
	}
	dbtest.Missing(t, "the clock of a database is set by libfaketime, which is not there (scripts/libfaketime.sh installs it on Debian and Ubuntu)")
	return ""
}

// jump sets the server's clock so far from the machine's, at once.
func (d *database) jump(by time.Duration) {
	d.Helper()
	next := d.clock + ".next"
	err := os.WriteFile(next, fmt.Appendf(nil, "%+d\n", int(by.Seconds())), 0o600)
	if err == nil {
		err = os.Rename(next, d.clock)
	}
	if err != nil {
		d.Fatal(err)
	}
}

// open fills a database with the server's tables.
func (d *database) open() *dbtest.DB {
	d.Helper()
	return d.openAs("orbit", migrations.Server)
}

// openAs makes a database of that name, if there is none, with the tables of a set.
func (d *database) openAs(name string, set migrations.Set) *dbtest.DB {
	d.Helper()
	address := "mysql:" + d.dsn(name)
	if err := d.migrate(name, address, set); err != nil {
		d.Fatalf("%v\n%s", err, d.log.tail())
	}
	db, err := drivers.Open(context.Background(), address)
	if err != nil {
		d.Fatal(err)
	}
	d.Cleanup(func() { db.Close() })
	return &dbtest.DB{DB: db, Engine: d.engine, Address: address}
}

func (d *database) migrate(name, address string, set migrations.Set) error {
	ctx := context.Background()
	root, err := sql.Open("mysql", d.dsn(""))
	if err != nil {
		return err
	}
	defer root.Close()
	if _, err := root.Exec("CREATE DATABASE IF NOT EXISTS " + name); err != nil {
		return err
	}
	db, err := drivers.OpenForMigration(ctx, address)
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = migrations.Up(ctx, db, set, migrations.Options{})
	return err
}
