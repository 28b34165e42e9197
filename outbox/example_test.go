package outbox_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/drivers"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/outbox"
)

// openShop stands for the database of a shop, in which orbit-migrate has made the
// tables of the outbox.
func openShop() (db *sql.DB, closeAll func()) {
	folder, err := os.MkdirTemp("", "orbit-example-")
	if err != nil {
		log.Fatal(err)
	}
	path := filepath.Join(folder, "shop.db")
	own, err := drivers.Open(context.Background(), "sqlite:"+path)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := migrations.Up(context.Background(), own, migrations.Outbox, migrations.Options{}); err != nil {
		log.Fatal(err)
	}
	db, err = sql.Open("sqlite", outbox.SQLiteDSN(path))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.Exec("CREATE TABLE orders (id INTEGER PRIMARY KEY, amount INTEGER NOT NULL)"); err != nil {
		log.Fatal(err)
	}
	return db, func() { db.Close(); own.Close(); os.RemoveAll(folder) }
}

func reserveStock(order, amount int) (outbox.Message, error) {
	key, err := outbox.Key("order", fmt.Sprint(order), "reserve-stock")
	return outbox.Message{
		Key:    key,
		Target: "warehouse",
		Request: orbit.SubmitTaskRequest{
			QueueID: "0123456789abcdef0123456789abcdef", Handler: "stock.reserve", HandlerVersion: "1", PayloadVersion: "1",
			Payload: json.RawMessage(fmt.Sprintf(`{"order":%d,"amount":%d}`, order, amount)),
		},
	}, err
}

// An order and the request that follows from it exist together, or not at all.
func ExampleOutbox_Enqueue() {
	db, closeAll := openShop()
	defer closeAll()
	ctx := context.Background()
	box, err := outbox.New(outbox.SQLite, outbox.Config{})
	if err != nil {
		log.Fatal(err)
	}

	placeOrder := func(order, amount int) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id, amount) VALUES (?, ?) ON CONFLICT DO NOTHING", order, amount); err != nil {
			return err
		}
		m, err := reserveStock(order, amount)
		if err != nil {
			return err
		}
		receipt, err := box.Enqueue(ctx, tx, m)
		if err != nil {
			return err // rolls the order back
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		fmt.Printf("order %d: row %d, existing %v\n", order, receipt.Seq, receipt.Existing)
		return nil
	}

	fmt.Println(placeOrder(1, 3))
	fmt.Println(placeOrder(1, 3)) // the caller was not sure and does it again
	err = placeOrder(1, 4)        // the same operation cannot have another content
	fmt.Println("conflict:", errors.Is(err, outbox.ErrConflict))
	// Output:
	// order 1: row 1, existing false
	// <nil>
	// order 1: row 1, existing true
	// <nil>
	// conflict: true
}

// A relay leads a shard, reads what is due, sends it, and records the answers.
func ExampleStore() {
	db, closeAll := openShop()
	defer closeAll()
	ctx := context.Background()
	box, err := outbox.New(outbox.SQLite, outbox.Config{})
	if err != nil {
		log.Fatal(err)
	}
	store, err := outbox.Open(outbox.SQLite, db, db)
	if err != nil {
		log.Fatal(err)
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	m, err := reserveStock(7, 1)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := box.Enqueue(ctx, tx, m); err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}

	lease, err := store.Lead(ctx, 0, "relay-1", 10*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	lanes, err := store.Lanes(ctx, lease.Shard)
	if err != nil {
		log.Fatal(err)
	}
	for _, lane := range lanes {
		due, err := store.ReadDue(ctx, lease.Shard, lane.ID, outbox.Cursor{}, 100)
		if err != nil {
			log.Fatal(err)
		}
		rows, err := store.Fetch(ctx, []int64{due[0].Seq})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s to %s: %s\n", rows[0].Key, rows[0].Target, rows[0].Request)
		n, err := store.Deliver(ctx, lease, []outbox.Delivery{{
			Seq: rows[0].Seq, TaskID: "11111111111111111111111111111111", Status: 201,
			RequestID: "44444444444444444444444444444444", AcceptedAt: time.Now(),
		}})
		fmt.Println("delivered:", n, err)
	}
	// Output:
	// order:7:reserve-stock to warehouse: {"queue_id":"0123456789abcdef0123456789abcdef","handler":"stock.reserve","handler_version":"1","payload_version":"1","payload":{"order":7,"amount":1}}
	// delivered: 1 <nil>
}

// A hook tells the relay in the same process that there is work.
func ExampleHook() {
	var hook outbox.Hook
	wake, cancel := hook.Subscribe() // the relay does this
	defer cancel()

	hook.Notify() // the business does this, after COMMIT
	hook.Notify()

	<-wake
	fmt.Println("look at the table, once")
	// Output: look at the table, once
}

func ExampleKey() {
	key, err := outbox.Key("order", "1042", "reserve stock")
	fmt.Println(key, err)
	// Output: order:1042:reserve%20stock <nil>
}
