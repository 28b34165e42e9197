package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/gorilla/websocket"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/wire"
)

const (
	// healthy is how long a connection must have lived for the next wait to start
	// small again. A server that accepts and drops must not be asked in a fast loop.
	healthy = 10 * time.Second
	// calm is the least wait after a broken protocol. It leaves room in a lease for
	// the other attempts.
	calm = time.Second
)

// newBackOff waits for a random time between zero and a limit that grows by half
// from first to most (full jitter). The library spreads by a factor around the
// middle, so it is given halves. It never gives up.
func newBackOff(first, most time.Duration) *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(max(first/2, 1)),
		backoff.WithMaxInterval(max(most/2, 1)),
		backoff.WithRandomizationFactor(1),
		backoff.WithMultiplier(1.5),
		backoff.WithMaxElapsedTime(0),
	)
}

// A pause decides how long to wait before a reconnect.
type pause struct {
	backOff *backoff.ExponentialBackOff
	most    time.Duration
}

func newPause(first, most time.Duration) *pause {
	return &pause{backOff: newBackOff(first, most), most: most}
}

// after returns the wait after a connection that lived so long and ended with err.
// As long as it is only the network, it is no longer than hurry.
func (p *pause) after(err error, lived, hurry time.Duration) time.Duration {
	if lived >= healthy {
		p.backOff.Reset()
	}
	wait := p.backOff.NextBackOff()
	if wait > hurry {
		wait = rand.N(hurry + 1) // not hurry itself, lest many come at once
	}
	switch tempoOf(err) {
	case slow:
		return p.most/2 + rand.N(p.most/2+1)
	case careful:
		wait += min(calm, p.most)
	}
	return wait + min(retryAfter(err), p.most)
}

type tempo int

const (
	quick   tempo = iota // the network, or a server that restarts
	careful              // one side broke the protocol
	slow                 // somebody has to change something
)

// tempoOf tells how soon another try may help.
func tempoOf(err error) tempo {
	var (
		handshake *HandshakeError
		refused   *RefusedError
		closed    *ClosedError
		protocol  *ProtocolError
	)
	switch {
	case errors.As(err, &handshake):
		return tempoOfStatus(handshake.Status)
	case errors.As(err, &closed):
		return tempoOfCode(closed.Code)
	case errors.As(err, &protocol):
		return careful
	case errors.As(err, &refused) && !unavailable(err):
		return slow
	}
	return quick
}

func tempoOfStatus(status int) tempo {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
		return quick
	}
	if status >= http.StatusInternalServerError {
		return quick
	}
	return slow
}

// tempoOfCode takes a replaced connection for an accident of the network: only we have
// our identity, and a hello that was given up can overtake the one that followed it.
func tempoOfCode(code int) tempo {
	switch code {
	case wire.CloseUnauthenticated, websocket.ClosePolicyViolation:
		return slow
	}
	if saysProtocol(code) {
		return careful
	}
	return quick
}

// saysProtocol reports whether a close code means that our words were not
// understood.
func saysProtocol(code int) bool {
	switch code {
	case wire.CloseProtocolError, websocket.CloseProtocolError, websocket.CloseUnsupportedData, websocket.CloseInvalidFramePayloadData:
		return true
	}
	return false
}

func retryAfter(err error) time.Duration {
	if e := (*HandshakeError)(nil); errors.As(err, &e) && e.HasRetryAfter {
		return e.RetryAfter
	}
	return 0
}

// refusedForGood reports whether err says that no wait will help: the server has
// looked at the registration and does not take it. Once it was taken, running
// handlers are worth more than an early end.
func (w *Worker) refusedForGood(err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.registered {
		return false
	}
	if closed := (*ClosedError)(nil); errors.As(err, &closed) {
		return saysProtocol(closed.Code)
	}
	var refused *RefusedError
	return exact(err) && errors.As(err, &refused) &&
		refused.Code != orbit.CodeUnauthenticated && refused.Code != orbit.CodePermissionDenied
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
