package recovery

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/bubble"
)

// A database that is away for an hour gives two lines, not one for every try.
func TestLastingFailureIsLoggedOnceAndItsEndToo(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := New(nil, Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
		ctx, cancel := context.WithCancel(t.Context())
		tries := 0
		r.loop(ctx, "sweep", nil, func(context.Context) (time.Duration, error) {
			if tries++; tries < 3600 {
				return time.Second, errors.New("database is away")
			}
			if tries > 3700 {
				cancel()
			}
			return time.Second, nil
		})
		if lines := strings.Split(strings.TrimSpace(log.String()), "\n"); len(lines) != 2 ||
			!strings.Contains(lines[0], "recovery fails") || !strings.Contains(lines[1], "works again") {
			t.Fatalf("%d lines:\n%s", len(lines), &log)
		}
	})
}
