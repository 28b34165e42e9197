// Bench measures what Orbit's hot paths cost, as ratios against hand-written floors that
// run in the same process, on the same server, in the same minutes:
//
//	enqueue  a business transaction with outbox.Enqueue, against the same transaction
//	         with a hand-written INSERT of the same bytes into a table of the same shape
//	relay    the drain of an outbox by relay.Run, against a hand-written loop that sends
//	         the same bytes to the same receiver
//	submit   64 clients that submit single tasks over HTTP to a server that gathers them
//	         into common transactions, against the same server that does not; commits per
//	         task; the latency of a lone submit
//	batch    batches of 100 over HTTP, against a hand-written loop that inserts the same
//	         rows into the same tables, one transaction for 100
//	reading  strict reading and digest of a request of 1 KiB, against decoding it into any,
//	         encoding it with sorted names and SHA-256
//
// Runs are interleaved in pairs and the ratio is taken within a pair, since the speed of
// a shared machine drifts. Only ratios count.
//
//	bench [-dsn user:password@tcp(host:port)/] [-pairs 9] [-clients 1,8] [-rows 20000] [enqueue|relay|submit|batch|reading|all]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
)

type options struct {
	dsn     string
	pairs   int
	clients []int
	each    int // transactions of one client in one run
	rows    int
	senders int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var o options
	var clients string
	flag.StringVar(&o.dsn, "dsn", os.Getenv("ORBIT_BENCH_DSN"), "MySQL or MariaDB server on which databases may be made (default $ORBIT_BENCH_DSN)")
	flag.IntVar(&o.pairs, "pairs", 9, "interleaved pairs of runs")
	flag.StringVar(&clients, "clients", "1,8", "enqueue: concurrent clients")
	flag.IntVar(&o.each, "each", 300, "enqueue, submit, batch: operations of one client in one run")
	flag.IntVar(&o.rows, "rows", 20000, "relay: rows to drain")
	flag.IntVar(&o.senders, "senders", 4, "relay: requests in flight")
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
		"enqueue": {benchEnqueue}, "relay": {benchRelay}, "submit": {benchSubmit}, "batch": {benchBatch}, "reading": {benchReading},
		"all": {benchEnqueue, benchRelay, benchSubmit, benchBatch, benchReading},
	}
	if benches[what] == nil {
		return fmt.Errorf("unknown bench %q: enqueue, relay, submit, batch, reading or all", what)
	}
	for _, b := range benches[what] {
		if err := b(ctx, o); err != nil {
			return err
		}
	}
	return nil
}
