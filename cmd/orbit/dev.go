package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/internal/drivers"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/internal/tracing"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server"
)

const devLong = `dev serves a node on a SQLite file, with nothing to set up: it makes the folder, applies
the schema and, the first time, makes an application, a namespace, a queue and a
credential. What it makes stays for the next time; remove the folder to begin anew.

It is for trying Orbit out and for small installations. ORBIT_DATABASE and ORBIT_MYSQL_DSN
are not looked at. If another orbit dev serves the folder, it says so and joins in.`

// devSettings are what the flags of dev say.
type devSettings struct {
	settings
	data string
	addr string
}

func newDev(env cli.Environment) *cobra.Command {
	var s devSettings
	dev := &cobra.Command{
		Use:   "dev",
		Short: "Serve a node on a SQLite file, with nothing to set up",
		Long:  devLong,
		RunE:  func(cmd *cobra.Command, _ []string) error { return s.run(cmd.Context(), env) },
	}
	dev.Flags().StringVar(&s.data, "data", ".orbit", "`folder` of the database and the credentials file")
	dev.Flags().StringVar(&s.addr, "addr", "", "`address` to listen on (default $ORBIT_HTTP_ADDR or "+defaultAddr+")")
	s.register(dev.Flags())
	return dev
}

func (s *devSettings) run(ctx context.Context, env cli.Environment) error {
	log, err := s.logger(env.Err)
	if err != nil {
		return err
	}
	if err := s.checkDurations(); err != nil {
		return err
	}
	s.readTLS(env)
	listener, err := s.listen(cmp.Or(s.addr, env.Get("ORBIT_HTTP_ADDR"), defaultAddr), log)
	if err != nil {
		return err // before anything is made
	}
	defer listener.Close()
	if err := s.makeFolder(); err != nil {
		return cli.Usage(fmt.Errorf("--data: %w", err))
	}
	db, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	unlock, alone := lockFolder(s.data)
	defer unlock()
	if !alone {
		log.Warn("another orbit dev serves this folder: both work on one database, and the credentials file names the one started last", "data", s.data)
	}
	s.nodeID = cmp.Or(s.nodeID, env.Get("ORBIT_NODE_ID"), sqldb.NewID().String())
	metrics, err := s.listenMetrics(env, log)
	if err != nil {
		return err
	}
	defer metrics.close()
	spans, stopSpans, err := tracing.Start(ctx, env.Get, tracing.About{Service: "orbit", Instance: s.nodeID}, log)
	if err != nil {
		return cli.Usage(err)
	}
	defer stopSpans()
	node, err := s.node(ctx, env, db, metrics, spans, log)
	if err != nil {
		return err
	}
	creds, err := s.credentials(ctx, db, s.url(listener.Addr()))
	if err != nil {
		return err
	}
	fmt.Fprint(env.Out, s.usage(s.url(listener.Addr()), creds))
	return node.Run(ctx, listener)
}

func (s *devSettings) makeFolder() (err error) {
	if s.data, err = filepath.Abs(s.data); err != nil {
		return err
	}
	return os.MkdirAll(s.data, 0o700)
}

func (s *devSettings) database() string { return filepath.Join(s.data, "orbit.db") }
func (s *devSettings) file() string     { return filepath.Join(s.data, "credentials.json") }

// open opens the database and brings its schema up to date.
func (s *devSettings) open(ctx context.Context) (*sqldb.DB, error) {
	db, err := drivers.OpenForMigration(ctx, "sqlite:"+s.database())
	if err != nil {
		return nil, cli.Usage(err)
	}
	if _, err := migrations.Up(ctx, db, migrations.Server, migrations.Options{}); err != nil {
		return nil, errors.Join(cli.Usage(err), db.Close())
	}
	return db, nil
}

// Names of what dev makes.
const devApplication, devNamespace, devQueue = "dev", "default", "default"

// credentials reads the credentials file, or makes one: for a new namespace, or for the
// one that lost its file. The file names the address of this node.
func (s *devSettings) credentials(ctx context.Context, db *sqldb.DB, url string) (orbit.Credentials, error) {
	if _, err := os.Stat(s.file()); !errors.Is(err, fs.ErrNotExist) {
		creds, err := orbit.LoadCredentials(s.file())
		if err != nil {
			return creds, cli.Usage(err)
		}
		if creds.URL == url {
			return creds, nil
		}
		creds.URL = url
		return creds, s.rewrite(creds)
	}
	request := server.BootstrapRequest{
		Application: devApplication, Namespace: devNamespace, Environment: "dev", Queue: devQueue, WorkerAccess: true, Actor: "orbit dev",
	}
	return server.CreateFile(ctx, db, s.file(), func() (orbit.Credentials, error) {
		creds, err := server.Bootstrap(ctx, db, request)
		if errors.Is(err, server.ErrExists) {
			request.NewCredential = true
			creds, err = server.Bootstrap(ctx, db, request)
		}
		creds.URL = url
		return creds, err
	})
}

// rewrite puts a new credentials file in the place of the old one, whole.
func (s *devSettings) rewrite(creds orbit.Credentials) error {
	temporary := s.file() + "." + sqldb.NewID().String()
	defer os.Remove(temporary)
	if err := orbit.SaveCredentials(temporary, creds); err != nil {
		return err
	}
	if err := os.Rename(temporary, s.file()); err != nil {
		return fmt.Errorf("put the new address into the credentials file: %w", err)
	}
	return nil
}

// url is how a client on this machine reaches the node.
func (s *devSettings) url(addr net.Addr) string {
	scheme := "http"
	if s.tlsCert != "" {
		scheme = "https"
	}
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return scheme + "://" + addr.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

const usage = `Orbit serves on {url}
  database     {database}
  credentials  {file}

Submit a task from another terminal:

  ORBIT_TOKEN=$(sed -n 's/.*"token": *"\([^"]*\)".*/\1/p' {quoted})
  curl -i {url}/v1/tasks -H "Authorization: Bearer $ORBIT_TOKEN" \
    -H 'Content-Type: application/json' -H 'Idempotency-Key: first-task' \
    -d '{"queue_id":"{queue}","handler":"hello","handler_version":"v1","payload_version":"v1","payload":{"name":"you"}}'

Look at what has become of it (application {application}, namespace {namespace}, queue {queuename}):

  ORBIT_DATABASE={sqlite} orbit-admin tasks list --application {application} --namespace {namespace} --queue {queuename}

Programs read ORBIT_URL={url} and ORBIT_CREDENTIALS_FILE={quoted}
Ctrl-C stops it.
`

// usage tells how to go on. It names the file that holds the token and not the token.
func (s *devSettings) usage(url string, creds orbit.Credentials) string {
	return strings.NewReplacer(
		"{url}", url, "{database}", s.database(), "{file}", s.file(), "{quoted}", shellQuote(s.file()), "{queue}", creds.QueueID,
		"{sqlite}", shellQuote("sqlite:"+s.database()), "{application}", devApplication, "{namespace}", devNamespace, "{queuename}", devQueue,
	).Replace(usage)
}

// shellQuote quotes a word for a POSIX shell if it has to be.
func shellQuote(word string) string {
	const safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+=:@%"
	if strings.Trim(word, safe) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
