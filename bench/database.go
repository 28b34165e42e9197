package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"

	"github.com/go-sql-driver/mysql"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
)

// A workshop is a database made for one bench, with the outbox tables in it.
type workshop struct {
	*sql.DB
	dsn  string
	drop func()
}

// newWorkshop makes a database and lets orbit-migrate make the tables of set.
func newWorkshop(ctx context.Context, server, set string) (*workshop, error) {
	cfg, err := mysql.ParseDSN(server)
	if err != nil {
		return nil, fmt.Errorf("-dsn: %w", err)
	}
	cfg.InterpolateParams = true
	cfg.MaxAllowedPacket = 64 << 20
	admin, err := sql.Open("mysql", cfg.FormatDSN())
	if err != nil {
		return nil, err
	}
	suffix := make([]byte, 4)
	rand.Read(suffix)
	cfg.DBName = "orbit_bench_" + hex.EncodeToString(suffix)
	if _, err := admin.ExecContext(ctx, "CREATE DATABASE "+cfg.DBName); err != nil {
		return nil, err
	}
	w := &workshop{dsn: cfg.FormatDSN(), drop: func() {
		admin.Exec("DROP DATABASE " + cfg.DBName)
		admin.Close()
	}}
	if out, err := w.run(ctx, "orbit-migrate", "up", "--set", set); err != nil {
		w.drop()
		return nil, fmt.Errorf("make the tables of %s: %w\n%s", set, err, out)
	}
	w.DB, err = sql.Open("mysql", w.dsn)
	if err != nil {
		return nil, err
	}
	w.SetMaxOpenConns(32)
	w.SetMaxIdleConns(32)
	return w, nil
}

// readCommitted opens the database anew, with the isolation that our server has.
func (w *workshop) readCommitted() (*sql.DB, error) {
	cfg, err := mysql.ParseDSN(w.dsn)
	if err != nil {
		return nil, err
	}
	cfg.Params = map[string]string{"transaction_isolation": "'READ-COMMITTED'"}
	db, err := sql.Open("mysql", cfg.FormatDSN())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(32)
	db.SetMaxIdleConns(32)
	return db, nil
}

// run runs one of our commands on the database and returns what it prints.
func (w *workshop) run(ctx context.Context, command string, args ...string) (string, error) {
	return runOn(ctx, "mysql:"+w.dsn, command, args...)
}

// runOn runs one of our commands on the database at address.
func runOn(ctx context.Context, address, command string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, "go", append([]string{"run", "./cmd/" + command}, args...)...)
	c.Dir = ".."
	c.Env = append(os.Environ(), "ORBIT_DATABASE="+address)
	out, err := c.CombinedOutput()
	return string(out), err
}

func (w *workshop) close() {
	w.DB.Close()
	w.drop()
}

const queue = "11111111111111111111111111111111"

// request returns a submit request whose payload has one KiB.
func request(i int) orbit.SubmitTaskRequest {
	const kib = 1024
	payload := fmt.Appendf(nil, `{"operation_ref":"operation-%08d","filler":"`, i)
	for len(payload) < kib-2 {
		payload = append(payload, 'x')
	}
	payload = append(payload, `"}`...)
	return orbit.SubmitTaskRequest{
		QueueID: queue, Handler: "bench.work", HandlerVersion: "v1", PayloadVersion: "v1",
		Payload: json.RawMessage(payload),
	}
}

func message(run, i int) outbox.Message {
	return outbox.Message{Key: fmt.Sprintf("operation-%d-%d", run, i), Target: "bench", Request: request(i)}
}

// inTx runs f in a transaction on db.
func inTx(ctx context.Context, db *sql.DB, f func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}
