package worker

import (
	"bytes"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"
)

// A held attempt shortens the wait only while its lease can still be saved (WRK-024).
func TestHurryEndsWithTheLease(t *testing.T) {
	w := &Worker{lease: 15 * time.Second}
	if got := w.hurry(time.Now()); got != math.MaxInt64 {
		t.Errorf("with nothing held: %v, want no bound", got)
	}
	w.wanted = 1
	if got := w.hurry(time.Now()); got != 5*time.Second {
		t.Errorf("with an attempt held: %v, want a third of the lease", got)
	}
	if got := w.hurry(time.Now().Add(-16 * time.Second)); got != math.MaxInt64 {
		t.Errorf("after the lease: %v, want no bound", got)
	}
}

func TestDefaultOnErrorLogsThePanicsStack(t *testing.T) {
	var log bytes.Buffer
	c := Config{Log: slog.New(slog.NewTextHandler(&log, nil))}.withDefaults()
	c.OnError(&PanicError{Value: "oops", Stack: []byte("goroutine 7 [running]")})
	c.OnError(errors.New("other"))
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "goroutine 7") || strings.Contains(lines[1], "stack=") {
		t.Fatalf("logged %q", lines)
	}
}
