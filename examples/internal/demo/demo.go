// Package demo starts the example programs, so that each of them shows only its own
// subject: it reads where the task server is, bounds the run, names what a run makes,
// and ends the process with a clear message if something is not as it should be.
package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/orbitkit/orbit"
)

// limit bounds a run, whatever happens (EX-012).
const limit = 60 * time.Second

// A Demo is one run of an example. Every run has a queue and keys of its own, so that it
// can be repeated, and can run beside others.
type Demo struct {
	URL         string // of the task server
	Credentials orbit.Credentials
	Client      *orbit.Client

	may  []string // permissions of the credential
	name string   // of the example
	run  string   // unlike that of any other run
	fail context.CancelCauseFunc
}

// Main runs an example and ends the process: with exit code 1 and one message if play
// returns an error, runs longer than a minute or is interrupted.
func Main(name string, play func(context.Context, *Demo) error) {
	if err := run(name, play); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

func run(name string, play func(context.Context, *Demo) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done after %v", limit))
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)

	d := &Demo{name: name, run: strings.ToLower(rand.Text()[:12]), fail: fail}
	if err := d.connect(ctx); err != nil {
		return err
	}
	defer d.Client.CloseIdleConnections()
	err := play(ctx, d)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w (%w)", err, cause)
	}
	return err
}

// connect reads ORBIT_URL and ORBIT_CREDENTIALS_FILE and makes sure that the server they
// lead to is the one that the credentials are for (CLI-006).
func (d *Demo) connect(ctx context.Context) (err error) {
	path := os.Getenv("ORBIT_CREDENTIALS_FILE")
	if path == "" {
		return errors.New("ORBIT_CREDENTIALS_FILE is not set: it names the file that orbit-admin bootstrap or orbit dev has written")
	}
	if d.Credentials, err = orbit.LoadCredentials(path); err != nil {
		return err
	}
	if d.URL = os.Getenv("ORBIT_URL"); d.URL == "" {
		d.URL = d.Credentials.URL
	}
	if d.URL == "" {
		return errors.New("ORBIT_URL is not set, and the credentials file names no server")
	}
	if d.Client, err = orbit.NewClient(d.URL, d.Credentials.Token, orbit.ClientConfig{}); err != nil {
		return err
	}
	has, err := d.Client.Capabilities(ctx)
	if err != nil {
		return fmt.Errorf("no task server at %s that takes these credentials: %w", d.URL, err)
	}
	d.may = has.Permissions
	return Same("namespace of the credentials", has.NamespaceID, d.Credentials.NamespaceID)
}

// Key returns an idempotency key of this run. In a real program it comes from the business
// operation, so that a repeat after a crash has the same one.
func (d *Demo) Key(operation string) string { return d.name + "-" + d.run + "-" + operation }

// Queue makes a queue for this run.
func (d *Demo) Queue(ctx context.Context, name string) (orbit.Queue, error) {
	return d.Client.CreateQueue(ctx, d.Key("queue-"+name), orbit.CreateQueueRequest{Name: d.Key(name)})
}
