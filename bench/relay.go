package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/relay"
)

// benchRelay compares rows drained per second, by a receiver that commits 100 rows a POST and
// by one that answers each POST at once, and counts the statements and commits of ours.
func benchRelay(ctx context.Context, o options) error {
	w, err := newWorkshop(ctx, o.dsn, "outbox")
	if err != nil {
		return err
	}
	defer w.close()
	answers, err := fillTemplates(ctx, w, o.rows)
	if err != nil {
		return err
	}
	for _, receiver := range []struct {
		name string
		kind sinkKind
	}{{"commits 100", sinkKind{}}, {"answers at once", sinkKind{instant: true}}} {
		if err := relayPairs(ctx, w, o, answers, receiver.name, receiver.kind); err != nil {
			return err
		}
	}
	return nil
}

func relayPairs(ctx context.Context, w *workshop, o options, answers map[string]prepared, name string, kind sinkKind) error {
	r := ratio{name: fmt.Sprintf("relay, %d rows, sink %s", o.rows, name)}
	forwarded := ratio{name: "  to the Watermill forwarder"}
	var statements, commits []float64 // commits at most: an UPDATE outside a transaction is one
	var oursCost, floorCost []cost
	for pair := range o.pairs {
		end, err := w.watch(ctx, o, pair, name+" ours")
		if err != nil {
			return err
		}
		ours, each, err := drain(ctx, w, answers, "orbit_outbox", kind, func(ctx context.Context, url string) error {
			return runOrbit(ctx, w, url, o.senders)
		})
		if err = errors.Join(err, end(o.rows)); err != nil {
			return fmt.Errorf("relay: %w", err)
		}
		if end, err = w.watch(ctx, o, pair, name+" floor"); err != nil {
			return err
		}
		floor, floorEach, err := drain(ctx, w, answers, "floor_relay", kind, func(ctx context.Context, url string) error {
			return (&floorRelay{db: w.DB, url: url, senders: o.senders}).run(ctx)
		})
		if err = errors.Join(err, end(o.rows)); err != nil {
			return fmt.Errorf("floor: %w", err)
		}
		r.add(ours, floor)
		oursCost, floorCost = append(oursCost, each), append(floorCost, floorEach)
		statements, commits = append(statements, each["Questions"]), append(commits, each["Com_commit"]+each["Com_update"])
		if kind.instant && pair < o.peers { // it sends rows one by one, and is slow
			peer, err := watermillRate(ctx, w, min(o.rows, 2000))
			if err != nil {
				return fmt.Errorf("watermill: %w", err)
			}
			forwarded.add(ours, peer)
		}
	}
	r.print()
	if len(forwarded.ours) > 0 {
		forwarded.print()
	}
	printCosts("  ours", oursCost)
	printCosts("  loop", floorCost)
	fmt.Printf("%-28s %.4f statements and at most %.4f commits a row (medians; those of the receiver left out)\n", "", quantile(statements, 0.5), quantile(commits, 0.5))
	return nil
}

// fillTemplates makes the rows once, so that each run begins with a copy of them.
func fillTemplates(ctx context.Context, w *workshop, n int) (map[string]prepared, error) {
	for _, q := range []string{
		"CREATE TABLE sink (id BIGINT PRIMARY KEY AUTO_INCREMENT, idempotency_key VARBINARY(128) NOT NULL UNIQUE, body MEDIUMBLOB NOT NULL)",
		"CREATE TABLE floor_relay (id BIGINT PRIMARY KEY AUTO_INCREMENT, idempotency_key VARBINARY(128) NOT NULL, body MEDIUMBLOB NOT NULL, state TINYINT NOT NULL, KEY pending (state, id))",
	} {
		if _, err := w.ExecContext(ctx, q); err != nil {
			return nil, err
		}
	}
	answers := make(map[string]prepared, n)
	box, err := outbox.New(outbox.MySQL, outbox.Config{})
	if err != nil {
		return nil, err
	}
	for first := 0; first < n; first += 500 {
		err := inTx(ctx, w.DB, func(tx *sql.Tx) error {
			for i := first; i < min(first+500, n); i++ {
				receipt, err := box.Enqueue(ctx, tx, message(0, i))
				if err != nil {
					return err
				}
				answers[message(0, i).Key] = prepare(receipt.Digest.String())
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	for _, q := range []string{
		"INSERT INTO floor_relay (idempotency_key, body, state) SELECT idempotency_key, request, 1 FROM orbit_outbox ORDER BY seq",
		"CREATE TABLE orbit_outbox_template LIKE orbit_outbox", "INSERT INTO orbit_outbox_template SELECT * FROM orbit_outbox",
		"CREATE TABLE floor_relay_template LIKE floor_relay", "INSERT INTO floor_relay_template SELECT * FROM floor_relay",
	} {
		if _, err := w.ExecContext(ctx, q); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// drain fills table anew, runs a relay until the sink has everything, and returns rows
// per second and what each row cost the database, without the statements of the sink.
func drain(ctx context.Context, w *workshop, answers map[string]prepared, table string, kind sinkKind, run func(context.Context, string) error) (perSecond float64, each cost, err error) {
	for _, q := range []string{
		"TRUNCATE TABLE sink", "TRUNCATE TABLE " + table,
		fmt.Sprintf("INSERT INTO %s SELECT * FROM %[1]s_template", table),
	} {
		if _, err := w.ExecContext(ctx, q); err != nil {
			return 0, nil, err
		}
	}
	return timeDrain(ctx, w, answers, kind, run)
}

// timeDrain runs a relay until the sink has everything.
func timeDrain(ctx context.Context, w *workshop, answers map[string]prepared, kind sinkKind, run func(context.Context, string) error) (perSecond float64, each cost, err error) {
	s, err := startSink(w.DB, answers, kind)
	if err != nil {
		return 0, nil, err
	}
	defer s.close()
	before, err := w.counters(ctx)
	if err != nil {
		return 0, nil, err
	}
	running, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	begin := time.Now()
	go func() { ended <- run(running, s.url) }()
	select {
	case <-s.done:
	case err := <-ended:
		return 0, nil, errors.Join(errors.New("ended before everything was sent"), err)
	}
	took := time.Since(begin)
	cancel()
	if err := <-ended; err != nil {
		return 0, nil, err
	}
	after, err := w.counters(ctx)
	if err != nil {
		return 0, nil, err
	}
	if !kind.instant {
		after["Questions"] -= s.requests.Load()
	}
	return float64(len(answers)) / took.Seconds(), after.since(before, len(answers)), nil
}

func runOrbit(ctx context.Context, w *workshop, url string, senders int) error {
	store, err := outbox.Open(outbox.MySQL, w.DB, w.DB)
	if err != nil {
		return err
	}
	client, err := orbit.NewClient(url, "bench", orbit.ClientConfig{MinimalBatchAnswers: true})
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	r, err := relay.New(store, []relay.Target{{Name: "bench", Client: client}}, relay.Config{Senders: senders})
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// questions reads how many statements the server has been sent.
func questions(ctx context.Context, db *sql.DB) (int64, error) {
	var name, value string
	if err := db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &value); err != nil {
		return 0, err
	}
	return strconv.ParseInt(value, 10, 64)
}
