package relay

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
)

const submitPermission = "tasks:submit"

// keepProbing probes the target while its gate is paused, first of all before anything
// is sent to it, until ctx is canceled.
func (g *gate) keepProbing(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		due, paused := g.nextProbe()
		timer.Stop()
		if paused {
			timer.Reset(due)
		}
		select {
		case <-ctx.Done():
			return
		case <-g.kick:
		case <-timer.C:
			g.probe(ctx)
		}
	}
}

func (g *gate) nextProbe() (time.Duration, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.Until(g.until), g.state == gatePaused
}

// probe asks the server who it is. It takes no row, so no row can keep the target
// paused.
func (g *gate) probe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.SendTimeout)
	defer cancel()
	caps, err := g.target.Client.Capabilities(ctx)
	if err == nil {
		err = g.check(caps)
	}
	if err != nil {
		g.failProbe(err)
		return
	}
	g.passProbe(caps)
}

// check refuses a server that rows of this target must not be sent to.
func (g *gate) check(caps orbit.Capabilities) error {
	g.mu.Lock()
	namespace := g.namespace
	g.mu.Unlock()
	return checkServer(caps, namespace)
}

// Probe asks the server of a target who it is, as a relay does before it sends anything:
// the error says why rows must not be sent to it. It sends no row.
func Probe(ctx context.Context, t Target) error {
	caps, err := t.Client.Capabilities(ctx)
	if err != nil {
		return err
	}
	return checkServer(caps, t.NamespaceID)
}

// checkServer holds a server against the namespace that rows are meant for, if it is
// known.
func checkServer(caps orbit.Capabilities, namespace string) error {
	switch {
	case namespace != "" && caps.NamespaceID != namespace:
		return fmt.Errorf("credential is of namespace %s, target is namespace %s", caps.NamespaceID, namespace)
	case len(caps.Permissions) > 0 && !slices.Contains(caps.Permissions, submitPermission):
		return fmt.Errorf("credential lacks the permission %s", submitPermission)
	case windowOf(caps) <= 0:
		return fmt.Errorf("server promises to know a key for %v only, less than the margin of %v", retentionOf(caps), outbox.RetentionMargin)
	}
	return nil
}

// retentionOf returns how long the server promises to know a key.
func retentionOf(caps orbit.Capabilities) time.Duration {
	promised := time.Duration(min(caps.IdempotencyRetentionMS, uint64(orbit.IdempotencyRetention.Milliseconds()))) * time.Millisecond
	if promised == 0 {
		return orbit.IdempotencyRetention
	}
	return promised
}

// windowOf returns for how long a row may be sent (OUT-014).
func windowOf(caps orbit.Capabilities) time.Duration {
	return retentionOf(caps) - outbox.RetentionMargin
}

func (g *gate) failProbe(err error) {
	g.mu.Lock()
	g.delay = g.backOff.NextBackOff()
	g.until = time.Now().Add(g.delay)
	why, delay := err.Error(), g.delay
	first := !g.probed || g.lastError != why
	g.probed, g.lastError, g.errorAt = true, why, time.Now()
	g.mu.Unlock()
	if first {
		g.log.Error("target stays paused", "probe_in", delay, "err", why)
	}
	g.changed()
}

func (g *gate) passProbe(caps orbit.Capabilities) {
	g.mu.Lock()
	g.probed, g.namespace, g.window = true, caps.NamespaceID, windowOf(caps)
	g.maxRows, g.maxBytes = g.cfg.BatchRows, orbit.MaxBodyBytes
	if n := caps.Batch.MaxItems; n > 0 {
		g.maxRows = min(g.maxRows, n)
	}
	if n := caps.Batch.MaxBytes; n > 0 {
		g.maxBytes = min(g.maxBytes, n)
	}
	if g.state == gatePaused {
		g.state, g.trialEnds = gateTrial, time.Time{}
	}
	g.mu.Unlock()
	g.log.Info("target is the right server", "namespace_id", caps.NamespaceID)
	g.changed()
}

// wasProbed reports whether the first probe has ended.
func (g *gate) wasProbed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.probed
}
