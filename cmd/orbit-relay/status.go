package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/outbox"
)

func newStatus(env cli.Environment) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how the outbox stands",
		Long: `status counts rows by state, and shows how long the oldest due row waits, who leads each
shard, which lanes have rows to be sent, and the last answer of the first due row of
each. It needs the database only. It reads an index entry for each row.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return showStatus(cmd.Context(), env, asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// A report is how an outbox stands, in the form that --json prints.
type report struct {
	At                time.Time        `json:"at"`
	Rows              map[string]int64 `json:"rows"` // by state
	OldestDueSeconds  float64          `json:"oldest_due_seconds"`
	OldestOpenSeconds float64          `json:"oldest_pending_seconds"`
	Shards            []shardReport    `json:"shards"`
	Lanes             []laneReport     `json:"lanes"`
	Holds             []holdReport     `json:"holds"`
}

type shardReport struct {
	Shard            int     `json:"shard"`
	Leader           string  `json:"leader,omitempty"` // empty if nobody leads
	Epoch            int64   `json:"epoch"`
	LeaseLeftSeconds float64 `json:"lease_left_seconds"`
}

type laneReport struct {
	Shard      int     `json:"shard"`
	Target     string  `json:"target"`
	QueueID    string  `json:"queue_id,omitempty"`
	DueSeconds float64 `json:"due_seconds"` // negative if due later
	LastError  string  `json:"last_error,omitempty"`
}

type holdReport struct {
	Target   string `json:"target"`
	QueueID  string `json:"queue_id,omitempty"`
	Operator string `json:"operator"`
	Reason   string `json:"reason"`
}

func showStatus(ctx context.Context, env cli.Environment, asJSON bool) error {
	db, err := openDatabase(ctx, env)
	if err != nil {
		return err
	}
	defer db.Close()
	store, err := outbox.Open(db.Dialect(), db.Write(), db.Read())
	if err != nil {
		return err
	}
	r, err := readReport(ctx, store)
	if err != nil {
		return err
	}
	if asJSON {
		e := json.NewEncoder(env.Out)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	return r.print(env.Out)
}

func readReport(ctx context.Context, store *outbox.Store) (report, error) {
	st, err := store.Status(ctx)
	if err != nil {
		return report{}, err
	}
	r := report{At: st.At, Rows: map[string]int64{}, Shards: []shardReport{}, Lanes: []laneReport{}, Holds: []holdReport{}}
	for s := outbox.Pending; s <= outbox.Discarded; s++ {
		r.Rows[s.String()] = st.Count[s]
	}
	r.OldestDueSeconds, r.OldestOpenSeconds = age(st.At, st.OldestDue), age(st.At, st.OldestPending)
	for _, l := range st.Leaders {
		shard := shardReport{Shard: l.Shard, Epoch: l.Epoch}
		if l.Left > 0 {
			shard.Leader, shard.LeaseLeftSeconds = l.Leader, l.Left.Seconds()
		}
		r.Shards = append(r.Shards, shard)
	}
	if err := r.addLanes(ctx, store); err != nil {
		return report{}, err
	}
	holds, err := store.Holds(ctx)
	for _, h := range holds {
		r.Holds = append(r.Holds, holdReport{Target: h.Target, QueueID: h.QueueID, Operator: h.Act.Operator, Reason: h.Act.Reason})
	}
	return r, err
}

func age(now, then time.Time) float64 {
	if then.IsZero() {
		return 0
	}
	return now.Sub(then).Seconds()
}

func (r *report) addLanes(ctx context.Context, store *outbox.Store) error {
	shards, err := store.Shards(ctx)
	if err != nil {
		return err
	}
	for _, shard := range shards {
		lanes, err := store.Lanes(ctx, shard)
		if err != nil {
			return err
		}
		for _, l := range lanes {
			last, err := lastError(ctx, store, shard, l.ID)
			if err != nil {
				return err
			}
			r.Lanes = append(r.Lanes, laneReport{Shard: shard, Target: l.Target, QueueID: l.QueueID, DueSeconds: -l.Wait.Seconds(), LastError: last})
		}
	}
	return nil
}

// lastError returns what the first due row of a lane was last answered.
func lastError(ctx context.Context, store *outbox.Store, shard int, lane int64) (string, error) {
	due, err := store.ReadDue(ctx, shard, lane, outbox.Cursor{}, 1)
	if err != nil || len(due) == 0 {
		return "", err
	}
	rows, err := store.Fetch(ctx, []int64{due[0].Seq})
	if err != nil || len(rows) == 0 || rows[0].Last.Outcome == outbox.OutcomeNone {
		return "", err
	}
	last := rows[0].Last
	return fmt.Sprintf("%v after %d sends: %d %s %s", last.Outcome, rows[0].Attempts, last.Status, last.Code, last.Message), nil
}

func (r *report) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for s := outbox.Pending; s <= outbox.Discarded; s++ {
		fmt.Fprintf(w, "%v\t%d\n", s, r.Rows[s.String()])
	}
	fmt.Fprintf(w, "oldest due row waits\t%s\n", seconds(r.OldestDueSeconds))
	fmt.Fprintf(w, "oldest pending row\t%s\n", seconds(r.OldestOpenSeconds))
	for _, s := range r.Shards {
		leader := "nobody"
		if s.Leader != "" {
			leader = fmt.Sprintf("%s, lease ends in %s", s.Leader, seconds(s.LeaseLeftSeconds))
		}
		fmt.Fprintf(w, "shard %d led by\t%s (epoch %d)\n", s.Shard, leader, s.Epoch)
	}
	for _, l := range r.Lanes {
		due := "due for " + seconds(l.DueSeconds)
		if l.DueSeconds < 0 {
			due = "due in " + seconds(-l.DueSeconds)
		}
		fmt.Fprintf(w, "target %s queue %s\t%s\t%s\n", l.Target, l.QueueID, due, l.LastError)
	}
	for _, h := range r.Holds {
		fmt.Fprintf(w, "held: target %q queue %q\tby %s: %s\n", h.Target, h.QueueID, h.Operator, h.Reason)
	}
	return w.Flush()
}

func seconds(s float64) string {
	return (time.Duration(s * float64(time.Second))).Round(time.Millisecond).String()
}
