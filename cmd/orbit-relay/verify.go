package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/outbox"
)

func newVerify(env environment) *cobra.Command {
	out := cli.Format{Env: env.Environment}
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Hold every row against all that must be true of it",
		Long: `verify reads the whole outbox, request bytes included, and says what cannot be: a request
or key that was changed, a state that does not fit the answer, a lease without a holder.
It changes nothing and may run beside relays. Exit code 1 means that there is a fault.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return verify(cmd.Context(), env, &out) },
	}
	out.Register(cmd.Flags())
	return cmd
}

// verified is what verify has found, in the form that --json prints.
type verified struct {
	Rows   int64   `json:"rows"`
	Count  int64   `json:"fault_count"`
	Faults []fault `json:"faults"` // the first 1000
}

type fault struct {
	Row  int64  `json:"row,omitempty"`
	Rule string `json:"rule"`
}

func verify(ctx context.Context, env environment, out *cli.Format) error {
	db, store, err := openOutbox(ctx, env)
	if err != nil {
		return err
	}
	defer db.Close()
	found, err := verifyAll(ctx, store)
	if err != nil {
		return err
	}
	err = out.Print(found, func(w io.Writer) {
		for _, f := range found.Faults {
			fmt.Fprintf(w, "row %d\t%s\n", f.Row, f.Rule)
		}
		fmt.Fprintf(w, "%d rows, %d faults\n", found.Rows, found.Count)
	})
	if err == nil && found.Count > 0 {
		err = fmt.Errorf("%d faults", found.Count)
	}
	return err
}

func verifyAll(ctx context.Context, store *outbox.Store) (verified, error) {
	found := verified{Faults: []fault{}}
	for next := int64(0); ; {
		v, err := store.Verify(ctx, next, outbox.MaxRows)
		if err != nil {
			return found, err
		}
		found.Rows, found.Count = found.Rows+int64(v.Rows), found.Count+int64(len(v.Faults))
		for _, f := range v.Faults[:min(len(v.Faults), outbox.MaxRows-len(found.Faults))] {
			found.Faults = append(found.Faults, fault{Row: f.Seq, Rule: f.Rule})
		}
		if next = v.Next; next == 0 {
			return found, nil
		}
	}
}
