// Outbox is a business service with an outbox: it takes orders over HTTP, and commits each
// order and the request to ship it in one transaction of its own database. It never calls the
// task server. A relay, which is a program of its own, reads the outbox and does; a worker
// ships.
//
//	service.go   the HTTP interface and the transaction
//	database.go  the service's database: MySQL, MariaDB or SQLite
//	worker.go    what a worker does for an order
//	main.go      a customer who orders, orders again, and orders too much
//
// With a task server as README.md starts it, in three terminals:
//
//	export SHOP=sqlite:/tmp/orbit-shop.db     # or mysql:user:password@tcp(127.0.0.1:3306)/shop
//	ORBIT_DATABASE=$SHOP orbit-migrate up --set outbox
//	ORBIT_RELAY_DATABASE=$SHOP orbit-relay run --target shipping
//	SHOP_DATABASE=$SHOP go run ./outbox
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/examples/internal/demo"
	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/worker"
)

func main() { demo.Main("outbox", play) }

// databaseVariable names the service's database; without it, a file.
const (
	databaseVariable = "SHOP_DATABASE"
	defaultDatabase  = "sqlite:/tmp/orbit-shop.db"
)

func play(ctx context.Context, d *demo.Demo) error {
	address := os.Getenv(databaseVariable)
	if address == "" {
		address = defaultDatabase
	}
	db, err := open(ctx, address)
	if err != nil {
		return err
	}
	defer db.Close()
	queue, err := d.Queue(ctx, "shipping")
	if err != nil {
		return err
	}
	s, err := newService(db, queue.ID)
	if err != nil {
		return err
	}
	drain, err := d.Work(ctx, map[string]worker.HandlerFunc{shipHandler: (&shipper{db}).ship}, queue.ID)
	if err != nil {
		return err
	}
	defer drain()
	url, stop, err := serve(s)
	if err != nil {
		return err
	}
	defer stop()
	c := customer{url: url, db: db, demo: d}
	if err := c.shop(ctx); err != nil {
		return err
	}
	return drain()
}

// serve serves the HTTP interface on a free port of the loopback.
func serve(h http.Handler) (url string, stop func(), err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	go server.Serve(ln)
	return "http://" + ln.Addr().String(), func() { server.Close() }, nil
}

// A customer orders over HTTP, and looks behind the counter afterwards.
type customer struct {
	url  string
	db   *database
	demo *demo.Demo
}

func (c customer) shop(ctx context.Context) error {
	product := c.demo.Key("pen")
	if err := c.db.stockUp(ctx, product, 3); err != nil {
		return err
	}
	good := order{ID: c.demo.Key("order-1"), Product: product, Quantity: 2}
	changed := good
	changed.Quantity = 1
	tooMuch := order{ID: c.demo.Key("order-2"), Product: product, Quantity: 2} // 1 is left
	var answers [4]int
	for i, o := range []order{good, good, changed, tooMuch} {
		var err error
		if answers[i], err = c.order(ctx, o); err != nil {
			return err
		}
	}
	fmt.Printf("ordered=%d again=%d changed=%d too_much=%d\n", answers[0], answers[1], answers[2], answers[3])
	if err := demo.Same("answers to the orders", answers, [4]int{201, 200, 409, 422}); err != nil {
		return err
	}
	if err := c.rolledBack(ctx, tooMuch); err != nil {
		return err
	}
	return c.shipped(ctx, good)
}

// order posts an order and returns the status.
func (c customer) order(ctx context.Context, o order) (status int, err error) {
	body, err := json.Marshal(o)
	if err != nil {
		return 0, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/orders", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}

// rolledBack shows that a refused order has left nothing: no order, no message, and the stock
// as it was.
func (c customer) rolledBack(ctx context.Context, o order) error {
	rows, err := c.messages(ctx, o)
	if err != nil {
		return err
	}
	orders, err := c.db.count(ctx, "SELECT COUNT(*) FROM orders WHERE id = ?", o.ID)
	if err != nil {
		return err
	}
	left, err := c.db.count(ctx, "SELECT quantity FROM stock WHERE product = ?", o.Product)
	if err != nil {
		return err
	}
	fmt.Printf("refused: orders=%d messages=%d stock=%d\n", orders, len(rows), left)
	return demo.Same("what a refused order leaves", [3]int{orders, len(rows), left}, [3]int{0, 0, 1})
}

// shipped waits for the relay and then for the worker.
func (c customer) shipped(ctx context.Context, o order) error {
	row, err := c.delivered(ctx, o)
	if err != nil {
		return err
	}
	task, err := c.demo.Client.WaitTask(ctx, row.TaskID)
	if err != nil {
		return err
	}
	shipments, err := c.db.count(ctx, "SELECT COUNT(*) FROM shipments WHERE order_id = ? AND task_id = ?", o.ID, task.ID)
	if err != nil {
		return err
	}
	fmt.Printf("relayed: state=%v task_is_of_the_order=%t\n", row.State, task.BusinessKey == o.ID)
	fmt.Printf("worked: task=%s shipments=%d\n", task.State, shipments)
	if err := demo.Same("state of the task", task.State, orbit.StateSucceeded); err != nil {
		return err
	}
	if err := demo.Same("business key of the task", task.BusinessKey, o.ID); err != nil {
		return err
	}
	return demo.Same("shipments of the order", shipments, 1)
}

// delivered waits until the platform has taken the message of an order.
func (c customer) delivered(ctx context.Context, o order) (outbox.Row, error) {
	for {
		rows, err := c.messages(ctx, o)
		if err != nil {
			return outbox.Row{}, err
		}
		switch {
		case len(rows) != 1:
			return outbox.Row{}, fmt.Errorf("order %s has %d messages, want 1", o.ID, len(rows))
		case rows[0].State == outbox.Delivered:
			return rows[0], nil
		case rows[0].State != outbox.Pending:
			return outbox.Row{}, fmt.Errorf("message of order %s is %v: %s", o.ID, rows[0].State, rows[0].Last.Message)
		}
		select {
		case <-ctx.Done():
			return outbox.Row{}, errors.New("no relay has sent the message: is orbit-relay running, with --target " + target + " and the database of this service?")
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (c customer) messages(ctx context.Context, o order) ([]outbox.Row, error) {
	key, err := shippingKey(o)
	if err != nil {
		return nil, err
	}
	store, err := outbox.Open(c.db.dialect, c.db.DB, c.db.DB)
	if err != nil {
		return nil, err
	}
	every := []outbox.State{outbox.Pending, outbox.Delivered, outbox.Rejected, outbox.Blocked, outbox.Discarded}
	return store.List(ctx, outbox.Filter{States: every, Target: target, Key: key}, 0, 10)
}
