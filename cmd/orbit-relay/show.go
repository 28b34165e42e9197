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

func newShow(env environment) *cobra.Command {
	out := cli.Format{Env: env.Environment}
	var request bool
	cmd := &cobra.Command{
		Use:   "show ROW",
		Short: "Show a row, the answers to it and what operators did",
		Long: `show prints a row, every answer to it other than accepted (of many the first and the last
32), and what operators did. The request itself is business data and only printed with
--request.`,
		Args: cli.OneArgument("the number of one row"),
		RunE: func(cmd *cobra.Command, args []string) error { return showRow(cmd.Context(), env, &out, args, request) },
	}
	cmd.Flags().BoolVar(&request, "request", false, "print the request too")
	out.Register(cmd.Flags())
	return cmd
}

// A history is all that is known of a row, in the form that --json prints.
type history struct {
	rowReport
	Attempts []attempt `json:"answers"`
	Entries  []entry   `json:"acts"`
	Request  string    `json:"request,omitempty"`
}

type attempt struct {
	Send          int       `json:"send"`
	At            time.Time `json:"at"`
	Leader        string    `json:"leader"`
	Epoch         int64     `json:"epoch"`
	RequestSHA256 string    `json:"request_sha256"`
	Unknown       bool      `json:"unknown"`
	answer
}

type entry struct {
	At       time.Time `json:"at"`
	Action   string    `json:"action"`
	Operator string    `json:"operator"`
	Reason   string    `json:"reason"`
	Before   string    `json:"before"`
	After    string    `json:"after"`
	Last     answer    `json:"last"`
}

func showRow(ctx context.Context, env environment, out *cli.Format, args []string, request bool) error {
	seqs, err := parseSeqs(args)
	if err != nil {
		return err
	}
	db, store, err := openOutbox(ctx, env)
	if err != nil {
		return err
	}
	defer db.Close()
	h, err := readHistory(ctx, store, seqs[0], request)
	if err != nil {
		return err
	}
	return out.Print(h, func(w io.Writer) { h.print(w) })
}

func readHistory(ctx context.Context, store *outbox.Store, seq int64, request bool) (history, error) {
	found, err := store.Show(ctx, seq)
	if err != nil {
		return history{}, err
	}
	h := describeHistory(&found)
	if request {
		h.Request = string(found.Row.Request)
	}
	return h, nil
}

func describeHistory(found *outbox.History) history {
	h := history{rowReport: describeRow(&found.Row), Attempts: []attempt{}, Entries: []entry{}}
	for _, a := range found.Attempts {
		h.Attempts = append(h.Attempts, attempt{
			Send: a.Number, At: a.At.UTC(), Leader: a.Leader, Epoch: a.Epoch, RequestSHA256: a.RequestSHA256,
			Unknown: a.Answer.Unknown, answer: describeAnswer(a.Answer),
		})
	}
	for _, e := range found.Entries {
		h.Entries = append(h.Entries, entry{
			At: e.At.UTC(), Action: e.Action, Operator: e.Act.Operator, Reason: e.Act.Reason,
			Before: e.Before.String(), After: e.After.String(), Last: describeAnswer(e.Last),
		})
	}
	return h
}

func (h *history) print(w io.Writer) {
	pointed := func(t *time.Time) string {
		if t == nil {
			return ""
		}
		return at(*t)
	}
	fields(w, "row", fmt.Sprint(h.Row), "state", h.State, "operation", h.Operation, "task to cancel", h.CancelTaskID, "target", h.Target, "queue", h.QueueID, "handler", h.Handler, "key", h.Key,
		"shard", fmt.Sprint(h.Shard), "size", fmt.Sprintf("%d bytes", h.Size), "content digest", h.ContentDigest, "request sha256", h.RequestSHA256,
		"enqueued", at(h.CreatedAt), "not before", pointed(h.NotBefore), "not after", pointed(h.NotAfter), "due", pointed(h.DueAt),
		"settled", pointed(h.SettledAt), "sends", fmt.Sprint(h.Sends), "a send may have been accepted", yes(h.Unknown),
		"last", h.Last.words(), "message", h.Last.Message, "answered digest", h.Last.Digest, "request id", h.Last.RequestID,
		"task", h.TaskID, "accepted", pointed(h.AcceptedAt))
	for _, a := range h.Attempts {
		fmt.Fprintf(w, "answer %d\t%s\t%s\t%s\t%s\n", a.Send, at(a.At), a.words(), cli.Plain(a.Message), cli.Plain(a.RequestID))
	}
	for _, e := range h.Entries {
		fmt.Fprintf(w, "%s\t%s\t%s to %s\tby %s: %s\n", e.Action, at(e.At), e.Before, e.After, cli.Plain(e.Operator), cli.Plain(e.Reason))
	}
	if h.Request != "" {
		fmt.Fprintf(w, "request\t%s\n", cli.Plain(h.Request))
	}
}
