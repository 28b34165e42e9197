package main

import (
	"context"
	"net"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server"
)

// runNode runs the program in this process until the test ends and returns the address
// that it serves on.
func runNode(t *testing.T, env map[string]string, args ...string) (addr string, errs *output, stop func() int) {
	t.Helper()
	errs = &output{}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	go func() {
		ended <- program.Run(ctx, args, cli.Environment{Get: func(name string) string { return env[name] }, Out: &output{}, Err: errs})
	}()
	stop = func() int {
		cancel()
		code := <-ended
		ended <- code
		return code
	}
	t.Cleanup(func() { stop() })
	serving := regexp.MustCompile(`msg=serving .*addr=(\S+)`)
	for range 1000 {
		if m := serving.FindStringSubmatch(errs.String()); m != nil {
			return m[1], errs, stop
		}
		if len(ended) > 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("orbit did not start: %s", errs)
	return "", nil, nil
}

func bootstrap(t *testing.T, db *dbtest.DB) orbit.Credentials {
	t.Helper()
	creds, err := server.Bootstrap(t.Context(), db.DB, server.BootstrapRequest{
		Application: "a", Namespace: "n", Environment: "e", Queue: "q", WorkerAccess: true, Actor: "test",
	})
	if err != nil {
		t.Fatal(err)
	}
	return creds
}

// CLI-003 … CLI-005, CLI-019: the environment says which database, address and name.
func TestServe(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		creds := bootstrap(t, db)
		env := map[string]string{"ORBIT_DATABASE": db.Address, "ORBIT_HTTP_ADDR": "127.0.0.1:0", "ORBIT_NODE_ID": "node-7"}
		if dsn, isMySQL := strings.CutPrefix(db.Address, "mysql:"); isMySQL {
			delete(env, "ORBIT_DATABASE")
			env["ORBIT_MYSQL_DSN"] = dsn
		}
		addr, errs, stop := runNode(t, env)
		submitOne(t, "http://"+addr, creds)
		if code := stop(); code != 0 {
			t.Errorf("exit %d: %s", code, errs)
		}
		if !strings.Contains(errs.String(), "node_id=node-7") || strings.Contains(errs.String(), creds.Token) {
			t.Errorf("log = %s", errs)
		}
	}, migrations.Server)
}

// Plain http beyond loopback is warned of.
func TestExposed(t *testing.T) {
	for addr, want := range map[string]bool{"127.0.0.1:80": false, "[::1]:80": false, "0.0.0.0:80": true, "[::]:80": true, "192.0.2.1:80": true} {
		if got := exposed(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr))); got != want {
			t.Errorf("exposed(%s) = %v, want %v", addr, got, want)
		}
	}
}
