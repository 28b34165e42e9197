package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/outbox"
)

// A lister lists rows.
type lister struct {
	env  environment
	out  cli.Format
	what listing
}

// A listing says which rows to list.
type listing struct {
	states []string
	filter outbox.Filter
	limit  int
	after  int64
}

// defaultLimit is how many rows a list shows unless it is told.
const defaultLimit = 50

func newList(env environment) *cobra.Command {
	l := &lister{env: env, out: cli.Format{Env: env.Environment}}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List rows that are not delivered",
		Long: `list shows rows in the order of their numbers, without their requests: by default those
that are not DELIVERED. It finds them by the index of their state.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return l.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringSliceVar(&l.what.states, "state", nil, "only rows in these `states`, such as blocked,rejected (default all but delivered)")
	f.StringVar(&l.what.filter.Target, "target", "", "only rows of the target with this `name`")
	f.StringVar(&l.what.filter.QueueID, "queue", "", "only rows of the queue with this `id`; needs --target")
	f.StringVar(&l.what.filter.Key, "key", "", "only the row with this idempotency `key`, in any state; needs --target")
	f.StringVar(&l.what.filter.TaskID, "task", "", "with --key: the cancel of the task with this `id`")
	f.BoolVar(&l.what.filter.Unknown, "unknown", false, "only rows of which a send ended unknown")
	f.IntVar(&l.what.limit, "limit", defaultLimit, "most `rows`, 1 to 1000")
	f.Int64Var(&l.what.after, "after", 0, "only rows after this `number`")
	l.out.Register(f)
	return cmd
}

func (l *lister) run(ctx context.Context) error {
	if err := l.what.check(); err != nil {
		return flagged(err)
	}
	db, store, err := openOutbox(ctx, l.env)
	if err != nil {
		return err
	}
	defer db.Close()
	list, err := l.what.read(ctx, store)
	if err != nil {
		return flagged(err)
	}
	return l.out.Print(list, func(w io.Writer) { list.print(w) })
}

// check completes the filter. A key alone means its row in any state.
func (l *listing) check() error {
	if l.limit < 1 || l.limit > outbox.MaxRows {
		return &orbit.InvalidArgumentError{Field: "limit", Rule: fmt.Sprintf("must be between 1 and %d", outbox.MaxRows)}
	}
	for _, name := range l.states {
		s, err := outbox.ParseState(name)
		if err != nil {
			return &orbit.InvalidArgumentError{Field: "state", Rule: "must be one of PENDING, DELIVERED, REJECTED, BLOCKED and DISCARDED"}
		}
		l.filter.States = append(l.filter.States, s)
	}
	if l.filter.Key != "" && len(l.states) == 0 {
		for s := outbox.Pending; s <= outbox.Discarded; s++ {
			l.filter.States = append(l.filter.States, s)
		}
	}
	return nil
}

func (l *listing) read(ctx context.Context, store *outbox.Store) (listed, error) {
	rows, err := store.List(ctx, l.filter, l.after, l.limit)
	if err != nil {
		return listed{}, err
	}
	list := listed{Rows: []rowReport{}}
	for i := range rows {
		list.Rows = append(list.Rows, describeRow(&rows[i]))
	}
	if len(rows) == l.limit && l.filter.Key == "" {
		list.Next = rows[len(rows)-1].Seq
	}
	return list, nil
}

// listed is a part of the list, in the form that --json prints.
type listed struct {
	Rows []rowReport `json:"rows"`
	Next int64       `json:"next,omitempty"` // for --after; absent on the last page
}

func (l *listed) print(w io.Writer) {
	fmt.Fprintln(w, "ROW\tSTATE\tOPERATION\tTARGET\tKEY\tSENDS\tLAST\tUNKNOWN\tENQUEUED\tDUE")
	for _, r := range l.Rows {
		due := ""
		if r.DueAt != nil {
			due = at(*r.DueAt)
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", r.Row, r.State, r.Operation, cli.Plain(r.Target), cli.Plain(r.Key), r.Sends,
			cli.Plain(r.Last.words()), yes(r.Unknown), at(r.CreatedAt), cli.Plain(due))
	}
	if l.Next != 0 {
		fmt.Fprintf(w, "more with --after %d\n", l.Next)
	}
}

// A rowReport is a row without its request.
type rowReport struct {
	Row           int64      `json:"row"`
	State         string     `json:"state"`
	Target        string     `json:"target"`
	QueueID       string     `json:"queue_id,omitempty"`
	Handler       string     `json:"handler,omitempty"`
	Key           string     `json:"key"`
	Operation     string     `json:"operation"`                // submit or cancel
	CancelTaskID  string     `json:"cancel_task_id,omitempty"` // the task that a cancel is for
	Shard         int        `json:"shard"`
	Size          int        `json:"size"`
	ContentDigest string     `json:"content_digest"`
	RequestSHA256 string     `json:"request_sha256"`
	CreatedAt     time.Time  `json:"created_at"`
	NotBefore     *time.Time `json:"not_before,omitempty"`
	NotAfter      *time.Time `json:"not_after,omitempty"`
	LateAllowed   bool       `json:"late_allowed,omitempty"`
	DueAt         *time.Time `json:"due_at,omitempty"`
	SettledAt     *time.Time `json:"settled_at,omitempty"`
	Sends         int        `json:"sends"`
	Unknown       bool       `json:"unknown"` // a send may have been accepted
	Last          answer     `json:"last"`
	TaskID        string     `json:"task_id,omitempty"`
	Deduplicated  bool       `json:"deduplicated,omitempty"`
	AcceptedAt    *time.Time `json:"accepted_at,omitempty"`
}

// An answer is one answer to a row.
type answer struct {
	Outcome   string `json:"outcome"`
	Status    int    `json:"status,omitempty"`
	Code      string `json:"code,omitempty"`
	Message   string `json:"message,omitempty"`
	Digest    string `json:"digest,omitempty"`
	RequestID string `json:"request_id,omitempty"`
}

func describeRow(r *outbox.Row) rowReport {
	return rowReport{
		Row: r.Seq, State: r.State.String(), Target: r.Target, QueueID: r.QueueID, Handler: r.Handler, Key: r.Key, Operation: r.Operation.String(), CancelTaskID: r.CancelTaskID,
		Shard: r.Shard, Size: r.Size, ContentDigest: r.Algorithm + ":" + fmt.Sprintf("%x", r.Digest[:]), RequestSHA256: fmt.Sprintf("%x", r.RequestSHA256),
		CreatedAt: r.CreatedAt.UTC(), NotBefore: since(r.NotBefore), NotAfter: since(r.NotAfter), LateAllowed: r.LateAllowed,
		DueAt: since(r.DueAt), SettledAt: since(r.SettledAt), Sends: r.Attempts, Unknown: r.Last.Unknown, Last: describeAnswer(r.Last),
		TaskID: r.TaskID, Deduplicated: r.Deduplicated, AcceptedAt: since(r.AcceptedAt),
	}
}

func describeAnswer(a outbox.Answer) answer {
	return answer{Outcome: a.Outcome.String(), Status: a.Status, Code: a.Code, Message: a.Message, Digest: a.Digest, RequestID: a.RequestID}
}

// words puts outcome, status and code in few words.
func (a answer) words() string {
	text := a.Outcome
	if a.Status != 0 {
		text += " " + strconv.Itoa(a.Status)
	}
	if a.Code != "" {
		text += " " + a.Code
	}
	return text
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
