package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/spf13/pflag"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/internal/drivers"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/relay"
)

// The names of the environment variables (CLI-015).
const (
	envDatabase    = "ORBIT_RELAY_DATABASE"
	envDSN         = "ORBIT_RELAY_MYSQL_DSN"
	envURL         = "ORBIT_URL"
	envToken       = "ORBIT_TOKEN"
	envCredentials = "ORBIT_CREDENTIALS_FILE"
)

// The versions of the outbox schema that this program runs on (MIG-008).
const minSchema, maxSchema = 2, 2

// settings are what flags say about relaying.
type settings struct {
	cfg           relay.Config
	target        string
	namespace     string
	allowInsecure bool
}

func (s *settings) register(flags *pflag.FlagSet) {
	flags.StringVar(&s.target, "target", "default", "`name` of the target that the task server is in outbox messages")
	flags.StringVar(&s.namespace, "namespace", "", "`id` of the namespace that the server has to confirm (default that of the credentials file)")
	flags.BoolVar(&s.allowInsecure, "allow-insecure", false, "send the token over plain http to a host that is not this one")
	flags.StringVar(&s.cfg.Name, "name", "", "`name` of this relay, for people (default host name and process id)")
	flags.DurationVar(&s.cfg.Lease, "lease", 0, "how long a crashed relay keeps its shards (default 10s)")
	flags.DurationVar(&s.cfg.SendTimeout, "send-timeout", 0, "bound of one request, at most 0.6 of the lease (default 5s)")
	flags.DurationVar(&s.cfg.StopTimeout, "stop-timeout", 0, "bound of a graceful stop (default the send timeout + 5s)")
	flags.DurationVar(&s.cfg.Poll, "poll", 0, "longest time between looks for rows while idle (default 1s)")
	cli.DurationVar(flags, &s.cfg.Retain, "retain", 0, "how long delivered rows are kept, such as 7d; -1s keeps them for ever (default 30d)")
	flags.IntVar(&s.cfg.Senders, "senders", 0, "requests under way at once per shard, 1 to 64 (default 4)")
	flags.IntVar(&s.cfg.BatchRows, "batch-rows", 0, "most rows in one request, 1 to 100 (default 100)")
}

// build returns a relay of an open outbox. What is wrong with flags or environment is a
// cli.Usage error.
func (s *settings) build(env cli.Environment, store *outbox.Store) (*relay.Relay, error) {
	target, err := s.readTarget(env)
	if err != nil {
		return nil, cli.Usage(err)
	}
	s.cfg.Log = slog.New(slog.NewTextHandler(env.Err, nil))
	r, err := relay.New(store, []relay.Target{target}, s.cfg)
	if err != nil {
		return nil, cli.Usage(oneLine(err))
	}
	return r, nil
}

func (s *settings) readTarget(env cli.Environment) (relay.Target, error) {
	credentials, err := readCredentials(env)
	if err != nil {
		return relay.Target{}, err
	}
	url := cmp.Or(env.Get(envURL), credentials.URL)
	if url == "" {
		return relay.Target{}, fmt.Errorf("set %s to the address of the task server", envURL)
	}
	client, err := orbit.NewClient(url, credentials.Token, orbit.ClientConfig{
		AllowInsecure:       s.allowInsecure,
		MinimalBatchAnswers: true,
	})
	if err != nil {
		return relay.Target{}, err
	}
	return relay.Target{Name: s.target, Client: client, NamespaceID: cmp.Or(s.namespace, credentials.NamespaceID)}, nil
}

func readCredentials(env cli.Environment) (orbit.Credentials, error) {
	token, file := env.Get(envToken), env.Get(envCredentials)
	switch {
	case token != "" && file != "":
		return orbit.Credentials{}, fmt.Errorf("%s and %s are both set: set one of them", envToken, envCredentials)
	case token != "":
		return orbit.Credentials{Token: token}, nil
	case file != "":
		return orbit.LoadCredentials(file)
	}
	return orbit.Credentials{}, fmt.Errorf("set %s to a credentials file, or %s to a token", envCredentials, envToken)
}

// openDatabase opens the business database and makes sure that the outbox is there in a
// version that this program knows.
func openDatabase(ctx context.Context, env cli.Environment) (*sqldb.DB, error) {
	address, err := drivers.FromEnvironment(env.Get, envDatabase, envDSN)
	if err != nil {
		return nil, cli.Usage(err)
	}
	db, err := drivers.OpenExisting(ctx, address)
	if err != nil {
		return nil, cli.Usage(err)
	}
	if err := migrations.Check(ctx, db, migrations.Outbox, minSchema, maxSchema); err != nil {
		db.Close()
		return nil, cli.Usage(err)
	}
	return db, nil
}

// oneLine puts joined errors on one line.
func oneLine(err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	text := ""
	for _, e := range joined.Unwrap() {
		if text != "" {
			text += "; "
		}
		text += e.Error()
	}
	return errors.New(text)
}

// checkLoopback refuses an address that other machines could reach.
func checkLoopback(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("address %q is not of the form host:port", address)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("address %q must be on a loopback address such as 127.0.0.1: it asks for no credential", address)
	}
	return nil
}
