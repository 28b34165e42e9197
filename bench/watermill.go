package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	wmmessage "github.com/ThreeDotsLabs/watermill/message"
	"github.com/go-sql-driver/mysql"
)

const wmTopic = "forward"

// A watermillOutbox is the outbox of watermill-sql, used as its documents show it.
type watermillOutbox struct{ *sql.DB }

// newWatermill makes its tables in the database of w, through a pool of its own: its JSON
// columns refuse values that the driver writes into the statement.
func newWatermill(ctx context.Context, w *workshop) (*watermillOutbox, error) {
	cfg, err := mysql.ParseDSN(w.dsn)
	if err != nil {
		return nil, err
	}
	cfg.InterpolateParams = false
	db, err := sql.Open("mysql", cfg.FormatDSN())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(32)
	db.SetMaxIdleConns(32)
	s, err := wmSubscriber(db)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return &watermillOutbox{db}, s.SubscribeInitialize(wmTopic)
}

func wmSubscriber(db *sql.DB) (*wmsql.Subscriber, error) {
	return wmsql.NewSubscriber(wmsql.BeginnerFromStdSQL(db), wmsql.SubscriberConfig{
		SchemaAdapter: wmsql.DefaultMySQLSchema{}, OffsetsAdapter: wmsql.DefaultMySQLOffsetsAdapter{},
	}, watermill.NopLogger{})
}

func (w *watermillOutbox) publish(tx *sql.Tx, key string, body []byte) error {
	p, err := wmsql.NewPublisher(wmsql.TxFromStdSQL(tx), wmsql.PublisherConfig{SchemaAdapter: wmsql.DefaultMySQLSchema{}}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	to := forwarder.NewPublisher(p, forwarder.PublisherConfig{ForwarderTopic: wmTopic})
	return to.Publish("tasks", wmmessage.NewMessage(key, body))
}

// enqueueRate returns business transactions per second with a message of the same bytes.
func (w *watermillOutbox) enqueueRate(ctx context.Context, clients, each int) (float64, error) {
	rows := make([]frozenRow, clients*each)
	for i := range rows {
		var err error
		if rows[i], err = freeze(0, i); err != nil {
			return 0, err
		}
	}
	return rate(clients, len(rows), func(i int) error {
		return inTx(ctx, w.DB, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, insertBusiness, rows[i].key); err != nil {
				return err
			}
			return w.publish(tx, watermill.NewUUID(), rows[i].body)
		})
	})
}

// A wmPoster is where the forwarder sends: a POST a message.
type wmPoster struct{ url string }

func (p wmPoster) Close() error { return nil }

func (p wmPoster) Publish(_ string, messages ...*wmmessage.Message) error {
	for _, m := range messages {
		req, err := http.NewRequest(http.MethodPost, p.url+"/v1/tasks", bytes.NewReader(m.Payload))
		if err != nil {
			return err
		}
		req.Header.Set("Idempotency-Key", m.UUID)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusCreated {
			return fmt.Errorf("sink answered %s", resp.Status)
		}
	}
	return nil
}

// watermillRate returns rows per second that its forwarder drains into a sink that answers at
// once.
func watermillRate(ctx context.Context, w *workshop, rows int) (float64, error) {
	peer, err := newWatermill(ctx, w)
	if err != nil {
		return 0, err
	}
	defer peer.Close()
	answers := make(map[string]prepared, rows)
	for first := 0; first < rows; first += 500 {
		err := inTx(ctx, peer.DB, func(tx *sql.Tx) error {
			for i := first; i < min(first+500, rows); i++ {
				r, err := freeze(0, i)
				if err != nil {
					return err
				}
				key := watermill.NewUUID()
				answers[key] = prepare(orbitDigest(r))
				if err := peer.publish(tx, key, r.body); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	perSecond, _, err := timeDrain(ctx, w, answers, sinkKind{instant: true}, func(ctx context.Context, url string) error {
		s, err := wmSubscriber(peer.DB)
		if err != nil {
			return err
		}
		f, err := forwarder.NewForwarder(s, wmPoster{url}, watermill.NopLogger{}, forwarder.Config{ForwarderTopic: wmTopic, CloseTimeout: 3 * time.Second})
		if err != nil {
			return err
		}
		go func() { <-ctx.Done(); f.Close() }()
		if err := f.Run(ctx); ctx.Err() == nil {
			return err
		}
		return nil
	})
	return perSecond, err
}
