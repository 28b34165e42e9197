// Health asks a task server whether it runs, whether it can work, and what it offers. The
// first two need no credential: they are for load balancers and process supervisors.
//
//	ORBIT_URL=http://127.0.0.1:8080 ORBIT_CREDENTIALS_FILE=/tmp/orbit.json go run ./health
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/examples/internal/demo"
)

func main() { demo.Main("health", play) }

func play(ctx context.Context, d *demo.Demo) error {
	alive, err := status(ctx, d.URL+"/healthz") // the process answers
	if err != nil {
		return err
	}
	ready, err := status(ctx, d.URL+"/readyz") // database and schema are as they should be, and it is not stopping
	if err != nil {
		return err
	}
	fmt.Printf("healthz=%d readyz=%d\n", alive, ready)
	if err := errors.Join(demo.Same("/healthz", alive, http.StatusOK), demo.Same("/readyz", ready, http.StatusOK)); err != nil {
		return err
	}
	if err := capabilities(ctx, d); err != nil {
		return err
	}
	return wrongToken(ctx, d)
}

func status(ctx context.Context, url string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// capabilities asks what the server offers. A sender that runs for a long time does this
// before its first send: it then knows that it speaks with the right server, and how long a
// key protects against a second task.
func capabilities(ctx context.Context, d *demo.Demo) error {
	c, err := d.Client.Capabilities(ctx)
	if err != nil {
		return err
	}
	days := c.IdempotencyRetentionMS / uint64((24 * time.Hour).Milliseconds())
	fmt.Printf("contract=%s digests=%v workers=%v\n", c.Contract, c.Digests, c.WorkerProtocols)
	fmt.Printf("batch_items=%d batch_bytes=%d keys_known_for_days=%d may_submit=%t\n",
		c.Batch.MaxItems, c.Batch.MaxBytes, days, slices.Contains(c.Permissions, "tasks:submit"))
	return errors.Join(
		demo.Same("contract", c.Contract, orbit.ContractName),
		demo.Same("digest is known", slices.Contains(c.Digests, orbit.DigestAlgorithm), true),
		demo.Same("application", c.ApplicationID, d.Credentials.ApplicationID),
		demo.Same("namespace", c.NamespaceID, d.Credentials.NamespaceID),
	)
}

// wrongToken shows what a credential that is unknown, expired or revoked gets.
func wrongToken(ctx context.Context, d *demo.Demo) error {
	stranger, err := orbit.NewClient(d.URL, "not-a-token", orbit.ClientConfig{})
	if err != nil {
		return err
	}
	defer stranger.CloseIdleConnections()
	_, err = stranger.Capabilities(ctx)
	refusal, err := demo.Refused("a wrong token", err, orbit.CodeUnauthenticated)
	if err != nil {
		return err
	}
	fmt.Printf("wrong_token=%d %s\n", refusal.Status, refusal.Code)
	return nil
}
