package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/outbox"
)

func newStatus(env environment) *cobra.Command {
	out := cli.Format{Env: env.Environment}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how the outbox stands",
		Long: `status says in its first line what is wrong, the worst first: relay dead (nobody leads),
no credential, server down, stuck, too small (rows come faster than they are accepted),
poison (rows that need a person), held, or ok. Then it counts rows by state, and shows how long the oldest due row waits, who leads each
shard, which lanes have rows to be sent, and the last answer of the first due row of
each. It needs the database only. It reads an index entry for each row.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return showStatus(cmd.Context(), env, &out) },
	}
	out.Register(cmd.Flags())
	return cmd
}

// A report is how an outbox stands, in the form that --json prints.
type report struct {
	At                time.Time        `json:"at"`
	Verdict           string           `json:"verdict"`  // the first finding, or ok
	Findings          []findingReport  `json:"findings"` // the worst first
	Rows              map[string]int64 `json:"rows"`     // by state
	OldestDueSeconds  float64          `json:"oldest_due_seconds"`
	OldestOpenSeconds float64          `json:"oldest_pending_seconds"`
	Shards            []shardReport    `json:"shards"`
	Lanes             []laneReport     `json:"lanes"`                // the first 100
	MoreLanes         bool             `json:"more_lanes,omitempty"` // there are others
	Targets           []targetReport   `json:"targets"`              // as those who lead now find them
	Holds             []holdReport     `json:"holds"`
}

type findingReport struct {
	Trouble string `json:"trouble"`
	Detail  string `json:"detail"`
}

type targetReport struct {
	Shard     int       `json:"shard"`
	Target    string    `json:"target"`
	State     string    `json:"state"`
	LastError string    `json:"last_error,omitempty"`
	Accepted  int64     `json:"accepted"`
	PerMinute int64     `json:"accepted_per_minute"`
	At        time.Time `json:"at"`
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

func showStatus(ctx context.Context, env environment, out *cli.Format) error {
	db, store, err := openOutbox(ctx, env)
	if err != nil {
		return err
	}
	defer db.Close()
	r, err := readReport(ctx, store)
	if err != nil {
		return err
	}
	return out.Print(r, r.print)
}

func readReport(ctx context.Context, store *outbox.Store) (report, error) {
	st, err := store.Status(ctx)
	if err != nil {
		return report{}, err
	}
	r := report{
		At: st.At, Verdict: "ok", Rows: map[string]int64{}, Findings: []findingReport{}, Shards: []shardReport{}, Lanes: []laneReport{},
		Targets: []targetReport{}, Holds: []holdReport{},
	}
	for _, f := range st.Findings {
		r.Findings = append(r.Findings, findingReport{Trouble: string(f.Trouble), Detail: f.Detail})
	}
	if len(st.Findings) > 0 {
		r.Verdict = st.Findings[0].String()
	}
	for s := outbox.Pending; s <= outbox.Discarded; s++ {
		r.Rows[s.String()] = st.Count[s]
	}
	r.OldestDueSeconds, r.OldestOpenSeconds = age(st.At, st.OldestDue), age(st.At, st.OldestPending)
	r.addLeaders(&st)
	return r, r.addLanes(ctx, store)
}

func (r *report) addLeaders(st *outbox.Status) {
	for _, l := range st.Leaders {
		shard := shardReport{Shard: l.Shard, Epoch: l.Epoch}
		if l.Left > 0 {
			shard.Leader, shard.LeaseLeftSeconds = l.Leader, l.Left.Seconds()
		}
		r.Shards = append(r.Shards, shard)
	}
	for _, t := range st.Targets {
		r.Targets = append(r.Targets, targetReport{
			Shard: t.Shard, Target: t.Target, State: t.Gate, LastError: t.Error, Accepted: t.Accepted, PerMinute: t.PerMinute, At: t.At,
		})
	}
	for _, h := range st.Holds {
		r.Holds = append(r.Holds, holdReport{Target: h.Target, QueueID: h.QueueID, Operator: h.Act.Operator, Reason: h.Act.Reason})
	}
}

func age(now, then time.Time) float64 {
	if then.IsZero() {
		return 0
	}
	return now.Sub(then).Seconds()
}

// maxLanes is how many lanes a report shows: each costs a look at its first row.
const maxLanes = 100

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
			if r.MoreLanes = len(r.Lanes) == maxLanes; r.MoreLanes {
				return nil
			}
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

func (r *report) print(w io.Writer) {
	fmt.Fprintln(w, cli.Plain(r.Verdict))
	for _, f := range r.Findings[min(1, len(r.Findings)):] {
		fmt.Fprintf(w, "also %s: %s\n", f.Trouble, cli.Plain(f.Detail))
	}
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
		fmt.Fprintf(w, "shard %d led by\t%s (epoch %d)\n", s.Shard, cli.Plain(leader), s.Epoch)
	}
	for _, t := range r.Targets {
		fmt.Fprintf(w, "shard %d finds target %s\t%s, %d accepted, %d a minute\t%s\n", t.Shard, t.Target, t.State, t.Accepted, t.PerMinute, cli.Plain(t.LastError))
	}
	for _, l := range r.Lanes {
		due := "due for " + seconds(l.DueSeconds)
		if l.DueSeconds < 0 {
			due = "due in " + seconds(-l.DueSeconds)
		}
		fmt.Fprintf(w, "target %s queue %s\t%s\t%s\n", l.Target, l.QueueID, due, cli.Plain(l.LastError))
	}
	if r.MoreLanes {
		fmt.Fprintln(w, "and other lanes")
	}
	for _, h := range r.Holds {
		fmt.Fprintf(w, "held: target %q queue %q\tby %s: %s\n", h.Target, h.QueueID, cli.Plain(h.Operator), cli.Plain(h.Reason))
	}
}

func seconds(s float64) string {
	return (time.Duration(s * float64(time.Second))).Round(time.Millisecond).String()
}
