package dbtest

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/orbitkit/orbit/internal/drivers/postgres"
	"github.com/orbitkit/orbit/migrations"
)

// newPostgres creates a fresh migrated schema on the test server and returns an address
// under which it is the only one: PostgreSQL takes a quarter of a second to make a
// database. It needs no template, since the guard's set is small.
func newPostgres(t testing.TB, sets []migrations.Set) string {
	t.Helper()
	server, err := url.Parse(NeedServer(t, Postgres))
	if err != nil || server.Scheme != "postgres" {
		t.Fatal("the test server's URL is malformed: want postgres://user:password@127.0.0.1:5432/postgres")
	}
	name := databaseName()
	if err := executePostgres(server, "CREATE SCHEMA "+name); err != nil {
		t.Fatalf("create test schema: %v", err)
	}
	t.Cleanup(func() {
		if err := executePostgres(server, "DROP SCHEMA IF EXISTS "+name+" CASCADE"); err != nil {
			t.Errorf("drop test schema: %v", err)
		}
	})
	own, query := *server, server.Query()
	query.Set("search_path", name)
	own.RawQuery = query.Encode()
	db, err := postgres.Open(t.Context(), own.String())
	if err != nil {
		t.Fatalf("open test schema: %v", err)
	}
	defer db.Close()
	if err := applyAll(t.Context(), db, sets); err != nil {
		t.Fatalf("fill test schema: %v", err)
	}
	return own.String()
}

func executePostgres(server *url.URL, statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, server.String())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, statement)
	return err
}
