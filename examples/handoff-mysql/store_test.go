package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit/handoff"
	"github.com/orbitkit/orbit/handoff/handofftest"
	"github.com/orbitkit/orbit/internal/dbtest"
)

// HAND-097, HAND-039: the store keeps the whole contract on each engine, over several connections,
// and with a second pool as another process would have.
func TestTheStoreKeepsTheContract(t *testing.T) {
	for _, engine := range dbtest.Engines() {
		t.Run(engine, func(t *testing.T) {
			db := dbtest.Open(t, engine)
			handofftest.Run(t, func(ctx context.Context) (handofftest.Host, error) { return openHost(ctx, db.Address) })
		})
	}
}

// openHost opens the store at address without tickets, and with a clock that stands in a
// table: the suite turns it, and all connections and processes see it.
func openHost(ctx context.Context, address string) (handofftest.Host, error) {
	s, err := open(ctx, address)
	if err != nil {
		return handofftest.Host{}, err
	}
	for _, statement := range []string{
		"DELETE FROM handoff_ticket",
		"CREATE TABLE IF NOT EXISTS test_clock (id INTEGER PRIMARY KEY, now BIGINT NOT NULL)",
		"DELETE FROM test_clock",
		"INSERT INTO test_clock VALUES (1, 1700000000123456)",
	} {
		if _, err := s.db.ExecContext(ctx, statement); err != nil {
			return handofftest.Host{}, errors.Join(err, s.Close())
		}
	}
	s.engine.clock = testClock
	var others []*store
	return handofftest.Host{
		Store: s,
		Advance: func(ctx context.Context, d time.Duration) error {
			_, err := s.db.ExecContext(ctx, "UPDATE test_clock SET now = now + ? WHERE id = 1", d.Microseconds())
			return err
		},
		Reopen: func(ctx context.Context) (handoff.Store, error) {
			other, err := open(ctx, address)
			if err == nil {
				other.engine.clock = testClock
				others = append(others, other)
			}
			return other, err
		},
		Receipt: func(ctx context.Context, key handoff.Key) (handoff.Receipt, string, error) {
			r, replyTo, ok, err := s.receipt(ctx, key)
			if err == nil && !ok {
				err = fmt.Errorf("%q has no receipt", key)
			}
			return r, replyTo, err
		},
		Close: func() error {
			err := s.Close()
			for _, other := range others {
				err = errors.Join(err, other.Close())
			}
			return err
		},
	}, nil
}

const testClock = "(SELECT now FROM test_clock WHERE id = 1)"

// The clock is the database's, to the microsecond on MySQL and MariaDB and to the millisecond on SQLite,
// whatever the time zone of a session.
func TestTheClockIsTheDatabases(t *testing.T) {
	for _, engine := range dbtest.Engines() {
		t.Run(engine, func(t *testing.T) {
			s, err := open(t.Context(), dbtest.Open(t, engine).Address)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			conn, err := s.db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if engine != dbtest.SQLite {
				if _, err := conn.ExecContext(t.Context(), "SET time_zone = '+05:30'"); err != nil {
					t.Fatal(err)
				}
			}
			now, err := s.now(t.Context(), conn)
			if off := time.Since(now).Abs(); err != nil || off > time.Hour/2 { // the machine's own zone is no better
				t.Errorf("the clock is off by %v, %v", off, err)
			}
			h, err := s.Offer(t.Context(), handoff.Ticket{Key: "k", From: "from", To: "to", ReplyTo: "inbox", TTL: 1}) // a nanosecond
			if err != nil || h.TTL != 1 || !h.Deadline.After(now) {
				t.Errorf("offered %+v, %v", h, err)
			}
			for later := now; err == nil && !later.After(h.Deadline); { // SQLite's clock has milliseconds
				later, err = s.now(t.Context(), conn)
			}
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.Take(t.Context(), "k", "to")
			tickets, snapErr := s.Snapshot(t.Context())
			if !errors.Is(err, handoff.ErrExpired) || snapErr != nil || tickets[0].State != handoff.StateExpired { // written by Take
				t.Errorf("late Take got %v and left %+v, %v", err, tickets, snapErr)
			}
		})
	}
}

// A snapshot shows what is committed and nothing else, whatever the sessions are set to.
func TestASnapshotShowsWhatIsCommittedWhateverTheSession(t *testing.T) {
	for _, engine := range dbtest.Engines() {
		t.Run(engine, func(t *testing.T) {
			address := dbtest.Open(t, engine).Address
			reader, err := open(t.Context(), address)
			if err != nil {
				t.Fatal(err)
			}
			defer reader.Close()
			writer, err := open(t.Context(), address)
			if err != nil {
				t.Fatal(err)
			}
			defer writer.Close()
			if engine != dbtest.SQLite {
				reader.db.SetMaxOpenConns(1) // each snapshot is on the session that is set up here
				for _, set := range []string{"SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED", "SET autocommit = 0"} {
					if _, err := reader.db.ExecContext(t.Context(), set); err != nil {
						t.Fatal(err)
					}
				}
			}
			shows := func(want int) {
				t.Helper()
				if tickets, err := reader.Snapshot(t.Context()); err != nil || len(tickets) != want {
					t.Errorf("the snapshot shows %v, %v; want %d tickets", tickets, err, want)
				}
			}
			shows(0)
			if _, err := writer.Offer(t.Context(), handoff.Ticket{Key: "k", From: "from", To: "to", ReplyTo: "inbox", TTL: time.Hour}); err != nil {
				t.Fatal(err)
			}
			shows(1)
			undone := errors.New("undone")
			err = writer.inTx(t.Context(), func(tx *sql.Tx) error {
				if _, err := tx.ExecContext(t.Context(), "DELETE FROM handoff_ticket"); err != nil {
					return err
				}
				shows(1)
				return undone
			})
			if !errors.Is(err, undone) {
				t.Fatal(err)
			}
			if engine != dbtest.SQLite {
				if _, err := reader.db.ExecContext(t.Context(), "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"); err != nil {
					t.Fatal(err)
				}
			}
			shows(1)
			if _, err := writer.db.ExecContext(t.Context(), "DELETE FROM handoff_ticket"); err != nil {
				t.Fatal(err)
			}
			shows(0)
		})
	}
}

// Names, addresses, payloads and receipts that the table cannot hold are refused before it is asked.
func TestWhatTheTableCannotHoldIsInvalid(t *testing.T) {
	s := new(store) // without a database
	long := func(n int) string { return string(make([]byte, n)) }
	for field, change := range map[string]func(*handoff.Ticket){
		"Ticket.Key":     func(t *handoff.Ticket) { t.Key = handoff.Key(long(maxName + 1)) },
		"Ticket.From":    func(t *handoff.Ticket) { t.From = handoff.Agent(long(maxName + 1)) },
		"Ticket.To":      func(t *handoff.Ticket) { t.To = handoff.Agent(long(maxName + 1)) },
		"Ticket.ReplyTo": func(t *handoff.Ticket) { t.ReplyTo = long(maxAddress + 1) },
		"Ticket.Payload": func(t *handoff.Ticket) { t.Payload = []byte(long(maxContent + 1)) },
		"Ticket.TTL":     func(t *handoff.Ticket) { t.TTL = 0 },
	} {
		ticket := handoff.Ticket{Key: "k", From: "from", To: "to", ReplyTo: "inbox", TTL: time.Second}
		change(&ticket)
		_, err := s.Offer(t.Context(), ticket)
		var invalid *handoff.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if err := validateReceipt(handoff.Receipt{Status: handoff.ReceiptDone, Summary: "s", Artifacts: make([]string, maxContent)}); err == nil {
		t.Error("an oversize receipt is valid")
	}
	key := handoff.Key(long(maxName + 1))
	_, takeErr := s.Take(t.Context(), key, "to")
	for _, err := range []error{takeErr, s.Reply(t.Context(), key, "token", done), s.Cancel(t.Context(), key, "from")} {
		if !errors.Is(err, handoff.ErrUnknownKey) {
			t.Errorf("a key that cannot be there: %v", err)
		}
	}
}

// Errors about an address do not show its password.
func TestBadAddressesAreRefused(t *testing.T) {
	for _, address := range []string{"", "postgres:x", "mysql:root:canary@nowhere", "mysql:root:canary@tcp(127.0.0.1:1)/db", "sqlite:/nowhere/at/all.db"} {
		if s, err := open(t.Context(), address); err == nil {
			s.Close()
			t.Errorf("%q was opened", address)
		} else if strings.Contains(err.Error(), "canary") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
}

// A time limit is rounded up to what the table can hold: no ticket has less time than was asked for.
func TestDeadlinesAreRoundedUp(t *testing.T) {
	now := time.UnixMicro(1_700_000_000_000_000)
	for ttl, want := range map[time.Duration]time.Duration{1: 1000, 999: 1000, 1000: 1000, 1001: 2000, time.Hour: time.Hour} {
		if got := deadline(now, ttl).Sub(now); got != want {
			t.Errorf("a limit of %v ends after %v, want %v", ttl, got, want)
		}
	}
}
