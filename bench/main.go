// Bench measures what Orbit's hot paths cost, as ratios against hand-written floors that
// run in the same process, on the same server, in the same minutes:
//
//	enqueue  a business transaction with outbox.Enqueue, against the same transaction
//	         with a hand-written INSERT of the same bytes into a table of the same shape
//	relay    the drain of an outbox by relay.Run, against a hand-written loop that sends
//	         the same bytes to the same receiver, and against the Watermill forwarder
//	forward  the drain of an outbox into our own server, against batches of 100 that clients
//	         submit to the same server
//	growth   the drain of an outbox that holds 1,000,000 delivered rows, as many that are not
//	         due, and 100,000 on hold, against an empty one
//	wake     from the commit of a business transaction to the arrival at the receiver, against
//	         a hand-written loop with the same wake-up; business transactions beside a relay
//	         with a slow receiver, against none
//	purge    deletion of delivered rows, and enqueues beside it
//	lull     statements and memory of an idle relay
//	submit   64 clients that submit single tasks over HTTP to a server that gathers them
//	         into common transactions, against the same server that does not; commits per
//	         task; the latency of a lone submit
//	batch    batches of 100 over HTTP, against a hand-written loop that inserts the same
//	         rows into the same tables, one transaction for 100
//	reading  strict reading and digest of a request of 1 KiB, against decoding it into any,
//	         encoding it with sorted names and SHA-256
//	drain    tasks ended by worker processes, against a hand-written loop that writes the
//	         same rows, the server without grouping, River and Asynq
//	finish   the same from the submits of 64 clients to the ends
//	nodes    drains by two and four nodes on one database, against one node
//	backlog  claims and drains beside 100,000 and 1,000,000 tasks that cannot be claimed,
//	         against none
//	start    from the acknowledgement of a submit to the begin of its handler, at 100 per
//	         second, against a hand-written loop
//	idle     memory and statements of 10,000 idle worker connections
//	guard    16 clients write through the resource guard, to one key and to 10,000, on MySQL,
//	         MariaDB and SQLite, against the same statements by hand
//
// Runs are interleaved in pairs and the ratio is taken within a pair, since the speed of
// a shared machine drifts. Only ratios count.
//
//	bench [-dsn user:password@tcp(host:port)/] [-pairs 9] [flags] [enqueue|relay|…|guard|all]
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

type options struct {
	dsn     string
	mariadb string
	engine  string // of guard
	pairs   int
	clients []int
	each    int // transactions of one client in one run
	rows    int
	senders int
	growth  int
	pace    time.Duration

	tasks       int
	processes   int // of workers
	capacity    int // of all workers together
	peers       int // rounds that others take part in
	backlog     int
	kind        string // of backlog
	verify      bool
	connections int
	idleFor     time.Duration
	explain     string // folder for profiles
	verbose     bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if part := os.Getenv(childVariable); part != "" {
		if err := children[part](ctx, bufio.NewReader(os.Stdin)); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s process: %v\n", part, err)
			os.Exit(1)
		}
		return
	}
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var o options
	var clients string
	flag.StringVar(&o.dsn, "dsn", os.Getenv("ORBIT_BENCH_DSN"), "MySQL or MariaDB server on which databases may be made (default $ORBIT_BENCH_DSN)")
	flag.StringVar(&o.mariadb, "mariadb", os.Getenv("ORBIT_BENCH_MARIADB_DSN"), "guard: MariaDB server on which databases may be made (default $ORBIT_BENCH_MARIADB_DSN); none leaves it out")
	flag.StringVar(&o.engine, "engine", "", "guard: only engines whose name has this in it (MySQL, MariaDB, SQLite)")
	flag.IntVar(&o.pairs, "pairs", 9, "interleaved pairs of runs")
	flag.StringVar(&clients, "clients", "1,8,32", "enqueue: concurrent clients")
	flag.IntVar(&o.each, "each", 300, "enqueue, submit, batch, guard: operations of one client in one run")
	flag.IntVar(&o.rows, "rows", 20000, "relay, forward, growth: rows to drain")
	flag.IntVar(&o.growth, "growth", 1_000_000, "growth: delivered rows, and rows not due; a tenth as many are on hold")
	flag.DurationVar(&o.pace, "pace", 10*time.Second, "wake, purge: how long business transactions come at a fixed rate")
	flag.IntVar(&o.senders, "senders", 4, "relay: requests in flight")
	flag.IntVar(&o.tasks, "tasks", 20000, "drain: tasks; finish and nodes take half as many, backlog a fifth")
	flag.IntVar(&o.processes, "processes", 2, "drain, finish, nodes, backlog: worker processes (nodes: at least 4)")
	flag.IntVar(&o.capacity, "capacity", 256, "drain, finish, nodes, backlog: attempts that all workers together hold at one time")
	flag.IntVar(&o.peers, "peers", 3, "enqueue, relay: rounds with Watermill; drain, finish: rounds with River, Asynq and our server without grouping; 0 leaves them out")
	flag.IntVar(&o.backlog, "backlog", 100_000, "backlog: tasks that cannot be claimed; the bench fills in as many, and ten times as many")
	flag.StringVar(&o.kind, "kind", "", "backlog: only kinds whose name has this in it (key, handler, delayed, done)")
	flag.BoolVar(&o.verify, "verify", true, "backlog: hold the filled database to the invariants at the end")
	flag.IntVar(&o.connections, "connections", 10_000, "idle: connections of workers; needs as many open files")
	flag.DurationVar(&o.idleFor, "idle", time.Minute, "idle: how long statements are counted")
	flag.StringVar(&o.explain, "explain", "", "drain, finish, relay: folder for CPU profiles; prints the statements that take the time of the database")
	flag.BoolVar(&o.verbose, "v", false, "drain, finish: print each run")
	flag.Parse()
	if o.dsn == "" {
		return fmt.Errorf("no server: set -dsn or ORBIT_BENCH_DSN")
	}
	for text := range strings.SplitSeq(clients, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("-clients: %q is not a positive number", text)
		}
		o.clients = append(o.clients, n)
	}
	what := flag.Arg(0)
	if what == "" {
		what = "all"
	}
	benches := map[string][]func(context.Context, options) error{
		"enqueue": {benchEnqueue}, "relay": {benchRelay}, "forward": {benchForward}, "growth": {benchGrowth},
		"wake": {benchWake}, "purge": {benchPurge}, "lull": {benchLull}, "submit": {benchSubmit}, "batch": {benchBatch}, "reading": {benchReading},
		"drain": {benchDrain}, "finish": {benchFinish}, "nodes": {benchNodes}, "backlog": {benchBacklog}, "start": {benchStart}, "idle": {benchIdle}, "guard": {benchGuard},
		"all": {benchEnqueue, benchRelay, benchForward, benchGrowth, benchWake, benchPurge, benchLull, benchSubmit, benchBatch, benchReading, benchDrain, benchFinish, benchNodes, benchBacklog, benchStart, benchIdle, benchGuard},
	}
	if benches[what] == nil {
		return fmt.Errorf("unknown bench %q: %s", what, strings.Join(slices.Sorted(maps.Keys(benches)), ", "))
	}
	for _, b := range benches[what] {
		if err := b(ctx, o); err != nil {
			return err
		}
	}
	return nil
}
