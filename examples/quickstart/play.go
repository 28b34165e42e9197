package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/resourceguard"
	"github.com/orbitkit/orbit/worker"
)

// Short terms, so that the accidents do not take long. A real installation keeps the
// defaults.
const (
	workerLease = "5s"
	shardLease  = "1s"
	sendTimeout = "300ms"
)

// A quickstart is one run of the play.
type quickstart struct {
	out   io.Writer
	begin time.Time
	dir   string

	programs                      *programs
	businessDB, serverDB, stockDB *database
	credentials                   orbit.Credentials
	serverURL                     string
	server                        *process
	relays                        int
	committed, ordered, sentTwice int
	stop                          []func() // what to end on the way out, last first
	business                      *business
	workerLog                     *os.File
	stock                         *stock
}

// play runs everything and cleans up after itself.
func play(ctx context.Context, out io.Writer, dsn string, keep bool) (err error) {
	dir, err := os.MkdirTemp("", "orbit-quickstart-")
	if err != nil {
		return err
	}
	q := &quickstart{out: out, begin: time.Now(), dir: dir}
	defer func() { q.cleanUp(keep) }()
	if q.workerLog, err = os.Create(filepath.Join(dir, "workers.log")); err != nil {
		return err
	}
	q.onExit(func() { q.workerLog.Close() })
	engine, err := q.chooseEngine(dsn)
	if err != nil {
		return err
	}
	if !keep {
		q.onExit(func() {
			if dropErr := engine.drop(); dropErr != nil {
				fmt.Fprintln(out, "could not drop the databases:", dropErr)
			}
		})
	}
	steps := []func(context.Context) error{
		func(ctx context.Context) error { return q.prepare(ctx, engine) },
		q.startServer,
		q.takeOrders,
		q.killRelay,
		q.relayAgain,
		q.work,
		q.stopServer,
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return q.report(ctx, out)
}

func (q *quickstart) chooseEngine(dsn string) (*engine, error) {
	if dsn == "" {
		return sqliteEngine(q.dir), nil
	}
	return mysqlEngine(dsn)
}

// say prints what happens, as it happens.
func (q *quickstart) say(format string, args ...any) {
	fmt.Fprintf(q.out, "%6.1fs  %s\n", time.Since(q.begin).Seconds(), fmt.Sprintf(format, args...))
}

func (q *quickstart) onExit(f func()) { q.stop = append(q.stop, f) }

func (q *quickstart) cleanUp(keep bool) {
	for i := len(q.stop) - 1; i >= 0; i-- {
		q.stop[i]()
	}
	if keep {
		q.say("kept: %s", q.dir)
		return
	}
	os.RemoveAll(q.dir)
}

// prepare builds the programs and makes three databases, each with its own tables.
func (q *quickstart) prepare(ctx context.Context, e *engine) (err error) {
	q.say("Building Orbit's programs (the first time takes a minute) …")
	if q.programs, err = buildPrograms(ctx, q.dir); err != nil {
		return err
	}
	q.say("Making three databases that share nothing: business, task server, stock owner (%s)", e.name)
	for _, d := range []struct {
		db   **database
		name string
		set  string
	}{{&q.businessDB, "business", "outbox"}, {&q.serverDB, "server", "server"}, {&q.stockDB, "stock", "guard"}} {
		db, err := e.open(ctx, d.name)
		if err != nil {
			return fmt.Errorf("make the %s database: %w", d.name, err)
		}
		*d.db = db
		q.onExit(func() { db.Close() })
		if err := q.programs.run(ctx, orbitDatabase(db), "orbit-migrate", "up", "--set", d.set); err != nil {
			return err
		}
	}
	return q.bootstrap(ctx)
}

func orbitDatabase(db *database) []string { return []string{"ORBIT_DATABASE=" + db.address} }

// bootstrap makes the first application, namespace, queue and credential.
func (q *quickstart) bootstrap(ctx context.Context) error {
	path := q.credentialsFile()
	err := q.programs.run(ctx, orbitDatabase(q.serverDB), "orbit-admin", "bootstrap",
		"--application", "quickstart", "--namespace", "default", "--environment", "test",
		"--queue", "orders", "--worker-access", "--output", path)
	if err != nil {
		return err
	}
	q.credentials, err = orbit.LoadCredentials(path)
	return err
}

func (q *quickstart) credentialsFile() string { return filepath.Join(q.dir, "credentials.json") }

func (q *quickstart) startServer(ctx context.Context) error {
	address, err := freeAddress()
	if err != nil {
		return err
	}
	env := append(orbitDatabase(q.serverDB), "ORBIT_HTTP_ADDR="+address)
	q.server, err = q.programs.start(env, "orbit", "orbit", "--lease", workerLease)
	if err != nil {
		return err
	}
	q.onExit(q.server.abandon)
	q.serverURL = "http://" + address
	if err := waitReady(ctx, q.serverURL, q.server); err != nil {
		return err
	}
	q.say("Task server is up at %s", q.serverURL)
	return nil
}

// takeOrders runs the business: no connection to the task server is open meanwhile.
func (q *quickstart) takeOrders(ctx context.Context) (err error) {
	if q.business, err = newBusiness(ctx, q.businessDB, q.credentials.QueueID); err != nil {
		return err
	}
	if q.stock, err = newStock(ctx, q.stockDB, q.credentials.NamespaceID); err != nil {
		return err
	}
	products := []string{"pen", "cup", "lamp"}
	for _, p := range products {
		if _, err := q.stockDB.ExecContext(ctx, "INSERT INTO stock (product, quantity) VALUES (?, ?)", p, initialStock); err != nil {
			return err
		}
	}
	rolledBack := 0
	for i := range 12 {
		o := order{ID: fmt.Sprintf("order-%03d", i+1), Product: products[i%len(products)], Quantity: 1 + i%4}
		paid := i%4 != 3
		err := q.business.take(ctx, o, paid)
		switch {
		case paid && err == nil:
			q.committed++
			q.ordered += o.Quantity
		case !paid && errors.Is(err, errPaymentFailed):
			rolledBack++
		default:
			return fmt.Errorf("take %s: %w", o.ID, err)
		}
	}
	q.say("Took %d orders: each committed together with its frozen request; %d more were rolled back and left no trace", q.committed, rolledBack)
	return nil
}

func (q *quickstart) startRelay(url string) (*process, error) {
	q.relays++
	env := []string{
		"ORBIT_RELAY_DATABASE=" + q.businessDB.address,
		"ORBIT_URL=" + url,
		"ORBIT_CREDENTIALS_FILE=" + q.credentialsFile(),
	}
	relay, err := q.programs.start(env, fmt.Sprintf("relay-%d", q.relays), "orbit-relay", "run",
		"--target", target, "--lease", shardLease, "--send-timeout", sendTimeout)
	if err == nil {
		q.onExit(relay.abandon)
	}
	return relay, err
}

// killRelay lets a relay send, keeps the server's answer from it, and kills it.
func (q *quickstart) killRelay(ctx context.Context) error {
	const pass = 1 // a relay tries a new target with one row first
	link, err := startHeldLink(q.serverURL, pass)
	if err != nil {
		return err
	}
	defer link.close()
	relay, err := q.startRelay(link.address)
	if err != nil {
		return err
	}
	select {
	case <-link.held:
	case <-relay.done:
		return fmt.Errorf("relay ended early: %w\n%s", relay.err, relay.tail())
	case <-ctx.Done():
		return fmt.Errorf("relay sent nothing: %w\n%s", ctx.Err(), relay.tail())
	}
	if err := relay.kill(); err != nil {
		return err
	}
	accepted, err := q.one(ctx, q.serverDB, "SELECT COUNT(*) FROM task")
	if err != nil {
		return err
	}
	delivered, err := q.one(ctx, q.businessDB, fmt.Sprintf("SELECT COUNT(*) FROM orbit_outbox WHERE state = %d", rowDelivered))
	if err != nil {
		return err
	}
	if q.sentTwice = accepted - delivered; q.sentTwice <= 0 {
		return fmt.Errorf("the accident did not happen: %d tasks accepted, %d rows delivered", accepted, delivered)
	}
	q.say("Relay killed (SIGKILL): the server had accepted %d orders, the relay had noted %d of them", accepted, delivered)
	return nil
}

// relayAgain starts another relay, which cannot know what was accepted. It sends the
// same keys with the same bytes.
func (q *quickstart) relayAgain(ctx context.Context) error {
	relay, err := q.startRelay(q.serverURL)
	if err != nil {
		return err
	}
	open := fmt.Sprintf("SELECT COUNT(*) FROM orbit_outbox WHERE state <> %d", rowDelivered)
	if err := q.await(ctx, "the outbox to be delivered", relay, func() (bool, error) {
		n, err := q.one(ctx, q.businessDB, open)
		return n == 0, err
	}); err != nil {
		return err
	}
	if err := relay.stop(20 * time.Second); err != nil {
		return err
	}
	again, err := q.one(ctx, q.businessDB, "SELECT COUNT(*) FROM orbit_outbox WHERE deduplicated = 1")
	if err != nil {
		return err
	}
	q.say("A new relay took over after the dead one's lease and sent the rest again: %d got their first receipt back, all %d are delivered", again, q.committed)
	return nil
}

// work runs two workers through their accidents until every task has succeeded.
func (q *quickstart) work(ctx context.Context) error {
	link, err := startCutLink(q.serverURL)
	if err != nil {
		return err
	}
	defer link.close()

	sleepy := newSleeper(q.stock)
	first, err := q.startWorker(ctx, link.address, 1, sleepy.reserve)
	if err != nil {
		return err
	}
	defer first.abandon()
	var held string
	select {
	case held = <-sleepy.asleep:
	case <-first.done:
		return fmt.Errorf("first worker ended early: %w", first.err)
	case <-ctx.Done():
		return fmt.Errorf("first worker got no task: %w", ctx.Err())
	}
	link.cut()
	q.say("Worker 1 started %s, then its process was paused and its connection broke; its lease runs out", held)

	forgetful := &answerLoser{stock: q.stock}
	second, err := q.startWorker(ctx, q.serverURL, 4, forgetful.reserve)
	if err != nil {
		return err
	}
	defer second.abandon()
	q.say("Worker 2 takes the rest; it will lose the answer to its first write")
	if err := q.awaitTasks(ctx); err != nil {
		return err
	}
	q.say("All %d tasks have succeeded; %s was done by worker 2 under a higher token", q.committed, held)
	if err := q.wakeSleeper(ctx, sleepy, link, held); err != nil {
		return err
	}
	for i, w := range []*runningWorker{first, second} {
		if err := w.drain(); err != nil {
			return fmt.Errorf("drain worker %d: %w", i+1, err)
		}
	}
	q.say("Both workers drained")
	return nil
}

// wakeSleeper lets the paused worker go on: its write comes too late.
func (q *quickstart) wakeSleeper(ctx context.Context, s *sleeper, link *cutLink, held string) error {
	link.mend()
	close(s.wake)
	var late error
	select {
	case late = <-s.late:
	case <-ctx.Done():
		return fmt.Errorf("worker 1 did not go on: %w", ctx.Err())
	}
	var stale *resourceguard.StaleError
	if !errors.As(late, &stale) {
		return fmt.Errorf("the late write of %s ended with %v, want it refused as stale", held, late)
	}
	q.say("Worker 1 woke up and wrote with token %d: refused, the stock had seen token %d", stale.Presented, stale.Highest)
	return nil
}

// awaitTasks waits until every task has succeeded.
func (q *quickstart) awaitTasks(ctx context.Context) error {
	open := fmt.Sprintf("SELECT COUNT(*) FROM task WHERE state <> %d", taskSucceeded)
	return q.await(ctx, "the tasks to succeed", q.server, func() (bool, error) {
		n, err := q.one(ctx, q.serverDB, open)
		return n == 0, err
	})
}

// A runningWorker is a worker of this process.
type runningWorker struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

func (q *quickstart) startWorker(ctx context.Context, url string, capacity int, reserve worker.HandlerFunc) (*runningWorker, error) {
	w, err := worker.NewWorker(url, q.credentials.Token, worker.Config{
		Queues:   []string{q.credentials.QueueID},
		Capacity: capacity,
		Handlers: map[worker.Handler]worker.HandlerFunc{{Name: handlerName, Version: "v1"}: reserve},
		Log:      slog.New(slog.NewTextHandler(q.workerLog, nil)),
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &runningWorker{cancel: cancel, done: make(chan struct{})}
	go func() {
		r.err = w.Run(ctx)
		close(r.done)
	}()
	return r, nil
}

// drain lets the worker finish what it has and waits for its clean end.
func (r *runningWorker) drain() error {
	r.cancel()
	<-r.done
	return r.err
}

func (r *runningWorker) abandon() { r.cancel() }

func (q *quickstart) stopServer(context.Context) error {
	if err := q.server.stop(30 * time.Second); err != nil {
		return err
	}
	q.say("Task server stopped")
	return nil
}

// one reads a single number.
func (q *quickstart) one(ctx context.Context, db *database, query string) (n int, err error) {
	err = db.QueryRowContext(ctx, query).Scan(&n)
	return n, err
}

// await polls until done reports true, p ends, or the time is up.
func (q *quickstart) await(ctx context.Context, what string, p *process, done func() (bool, error)) error {
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w\n%s", what, ctx.Err(), p.tail())
		case <-p.done:
			return fmt.Errorf("waiting for %s: %s ended: %w\n%s", what, p.name, p.err, p.tail())
		case <-time.After(20 * time.Millisecond):
		}
	}
}
