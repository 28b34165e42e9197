package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A privateServer is a database server of one bench, on a free loopback port, with a
// folder of its own that goes with it.
type privateServer struct {
	name, address, password string
	folder                  string
	cmd                     *exec.Cmd
	quit                    os.Signal
	ended                   chan struct{}
}

// errMissing reports that a server is not installed: its bench is left out.
var errMissing = errors.New("not installed")

func newPrivateServer(name string) (*privateServer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	folder, err := os.MkdirTemp("", "orbit-bench-"+name)
	if err != nil {
		return nil, err
	}
	secret := make([]byte, 16)
	rand.Read(secret)
	return &privateServer{
		name: name, address: l.Addr().String(), password: hex.EncodeToString(secret), folder: folder,
		quit: syscall.SIGTERM, ended: make(chan struct{}),
	}, nil
}

func (p *privateServer) port() string { return p.address[strings.LastIndexByte(p.address, ':')+1:] }

// start runs a server command until close and waits until the server answers.
func (p *privateServer) start(ctx context.Context, cmd *exec.Cmd, answers func(context.Context) error) error {
	output, err := os.Create(filepath.Join(p.folder, p.name+".log"))
	if err != nil {
		return err
	}
	defer output.Close()
	p.cmd = cmd
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		cmd.Wait()
		close(p.ended)
	}()
	for range 300 {
		if err = answers(ctx); err == nil {
			return nil
		}
		select {
		case <-p.ended:
			text, _ := os.ReadFile(output.Name())
			return fmt.Errorf("%s ended: %s", p.name, text)
		case <-time.After(100 * time.Millisecond):
		}
	}
	return fmt.Errorf("%s does not answer: %w", p.name, err)
}

func (p *privateServer) close() {
	if p.cmd != nil && p.cmd.Process != nil {
		p.cmd.Process.Signal(p.quit)
		select {
		case <-p.ended:
		case <-time.After(20 * time.Second):
			p.cmd.Process.Kill()
			<-p.ended
		}
	}
	os.RemoveAll(p.folder)
}

// startPostgres starts a PostgreSQL that flushes every commit.
func startPostgres(ctx context.Context, answers func(context.Context, string) error) (*privateServer, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if path, err := exec.LookPath("initdb"); err == nil {
		found = append(found, path)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("initdb of PostgreSQL: %w", errMissing)
	}
	bin := filepath.Dir(slices.Max(found))
	p, err := newPrivateServer("postgres")
	if err != nil {
		return nil, err
	}
	p.quit = syscall.SIGINT
	if err := p.initPostgres(ctx, bin); err != nil {
		p.close()
		return nil, err
	}
	cmd := exec.Command(filepath.Join(bin, "postgres"), "-D", filepath.Join(p.folder, "data"), "-p", p.port(),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="+p.folder, "-c", "fsync=on", "-c", "synchronous_commit=on",
		"-c", "shared_buffers=1GB", "-c", "max_wal_size=2GB", "-c", "max_connections=200")
	if cmd.SysProcAttr, err = postgresUser(); err == nil {
		err = p.start(ctx, cmd, func(ctx context.Context) error { return answers(ctx, p.postgresURL()) })
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *privateServer) postgresURL() string {
	return "postgres://bench:" + p.password + "@" + p.address + "/postgres?sslmode=disable"
}

func (p *privateServer) initPostgres(ctx context.Context, bin string) error {
	secret := filepath.Join(p.folder, "password")
	if err := os.WriteFile(secret, []byte(p.password), 0o600); err != nil {
		return err
	}
	as, err := postgresUser()
	if err != nil {
		return err
	}
	if as != nil {
		for _, path := range []string{p.folder, secret} {
			if err := os.Chown(path, int(as.Credential.Uid), int(as.Credential.Gid)); err != nil {
				return err
			}
		}
	}
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", filepath.Join(p.folder, "data"),
		"-U", "bench", "-A", "scram-sha-256", "--pwfile", secret, "-E", "UTF8", "--locale", "C")
	initdb.SysProcAttr, initdb.Dir = as, p.folder
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return nil
}

// postgresUser is who runs PostgreSQL, which refuses root.
func postgresUser() (*syscall.SysProcAttr, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("the user that runs PostgreSQL, which refuses root: %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
}

// startRedis starts a Redis that appends every command to its file, flushed, before it
// answers.
func startRedis(ctx context.Context, answers func(ctx context.Context, address, password string) error) (*privateServer, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("redis-server: %w", errMissing)
	}
	p, err := newPrivateServer("redis")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, "-") // its settings, among them the password, from stdin
	cmd.Stdin = strings.NewReader(fmt.Sprintf("bind 127.0.0.1\nport %s\ndir %s\nrequirepass %s\nappendonly yes\nappendfsync always\nsave \"\"\n", p.port(), p.folder, p.password))
	if err := p.start(ctx, cmd, func(ctx context.Context) error { return answers(ctx, p.address, p.password) }); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}
