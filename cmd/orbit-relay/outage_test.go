package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orbitkit/orbit/cmd/orbit-relay/internal/config"
	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/freeport"
	"github.com/orbitkit/orbit/outbox"
)

// REL-019: a relay that starts while its database is away goes on once it is there.
func TestARelayWaitsForADatabaseThatIsAwayAtItsStart(t *testing.T) {
	for _, engine := range []string{dbtest.MySQL, dbtest.MariaDB} {
		t.Run(engine, func(t *testing.T) {
			s := newSite(t, engine)
			seqs := s.enqueue("order")
			env, address := s.env(), freeport.Address(t)
			env[envDatabase] = strings.Replace(s.db.Address, serverOf(s.db.Address), address, 1)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var log output
			ended := make(chan int, 1)
			go func() {
				ended <- program.Run(ctx, []string{"run", "--target", "shop"}, cliEnvironment(env, &log, &log))
			}()
			eventually(t, "the relay tells that it waits", func() bool {
				select {
				case code := <-ended:
					t.Fatalf("the relay ended with %d: %s", code, &log)
				default:
				}
				return strings.Contains(log.String(), "trying on")
			})
			listener, err := net.Listen("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			newStraitOn(t, listener, serverOf(s.db.Address))
			eventually(t, "the row is delivered", func() bool { return s.delivered(seqs) })
			cancel()
			if code := <-ended; code != 0 {
				t.Errorf("exit code %d, want 0: %s", code, &log)
			}
		})
	}
}

// CLI-017: cron can tell an outage, which has exit code 1, from a mistake.
func TestADatabaseThatCannotBeReachedIsNoMistake(t *testing.T) {
	env := map[string]string{envDSN: "root:sesame@tcp(127.0.0.1:1)/x", envURL: "http://127.0.0.1:1", envToken: "sesame"}
	for _, args := range []string{"status", "list", "doctor", "verify", "once", "check", "requeue 1 --operator a --reason b", "hold --all --operator a --reason b"} {
		code, out, text := call(t.Context(), env, strings.Fields(args)...)
		if code != cli.ExitFailure || !strings.Contains(text, "127.0.0.1:1") || strings.Contains(out+text, "sesame") {
			t.Errorf("%s = %d %q, want 1 and the address", args, code, text)
		}
	}
}

// CLI-017: check finds a user who may not do what the relay does.
func TestCheckFindsARightThatIsMissing(t *testing.T) {
	for _, engine := range []string{dbtest.MySQL, dbtest.MariaDB} {
		t.Run(engine, func(t *testing.T) {
			s := newSite(t, engine)
			address, _ := s.user([]string{"GRANT SELECT ON shop.* TO relay@'%'"})
			env := s.env()
			if code, _, text := call(t.Context(), env, "check", "--target", "shop"); code != 0 {
				t.Fatalf("check = %d %q", code, text)
			}
			env[envDatabase] = address
			if code, _, text := call(t.Context(), env, "check", "--target", "shop"); code != cli.ExitUsage || !strings.Contains(text, "refused") {
				t.Errorf("check = %d %q, want 2 and the right", code, text)
			}
		})
	}
}

// RFC 9110: the name of a scheme has no case, a token has.
func TestTheSchemeOfATokenHasNoCase(t *testing.T) {
	var h tokenHolder
	h.set("sesame-open-sesame")
	for header, want := range map[string]bool{
		"Bearer sesame-open-sesame": true, "bearer sesame-open-sesame": true, "BEARER sesame-open-sesame": true,
		"Bearer Sesame-open-sesame": false, "Basic sesame-open-sesame": false, "sesame-open-sesame": false, "": false,
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Authorization", header)
		if got := h.admits(r); got != want {
			t.Errorf("%q is admitted: %t, want %t", header, got, want)
		}
	}
}

// The one metric of the program is documented.
func TestTheMetricOfTheProgramIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	desc := (&openness{sources: newSupervisor(nil, false, nil)}).desc().String()
	if !strings.Contains(desc, `"orbit_relay_source_open"`) || !strings.Contains(desc, "{source}") || !strings.Contains(string(text), "| `orbit_relay_source_open` | gauge | `source` |") {
		t.Errorf("documented is another metric than %s", desc)
	}
}

// A supervised is a supervisor under a configuration that the test replaces.
type supervised struct {
	*supervisor
	t      *testing.T
	log    output
	next   config.Config
	reload chan os.Signal
	server *httptest.Server // of metrics
}

func supervise(t *testing.T, cfg config.Config) *supervised {
	s := &supervised{t: t, reload: make(chan os.Signal)}
	s.supervisor = newSupervisor(slog.New(slog.NewTextHandler(&s.log, nil)), false, nil)
	s.metrics = newExposition(s.supervisor)
	s.server = httptest.NewServer(s.metrics.handler())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx, cfg, s.reload, func() (config.Config, []error) { return s.next, nil }) }()
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.log.String())
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		s.server.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return s
}

// load replaces the configuration and returns once a word of the log says that it was read.
func (s *supervised) load(cfg config.Config, word string) {
	s.t.Helper()
	before := strings.Count(s.log.String(), word)
	s.next = cfg
	s.reload <- syscall.SIGHUP
	eventually(s.t, "the log has "+word, func() bool { return strings.Count(s.log.String(), word) > before })
}

func (s *supervised) scrape() string {
	s.t.Helper()
	resp, err := http.Get(s.server.URL + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	var text strings.Builder
	if err := resp.Write(&text); err != nil {
		s.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		s.t.Errorf("metrics are answered %s: %.300s", resp.Status, &text)
	}
	return text.String()
}

func (s *supervised) serves(name string) bool {
	r := s.find(name)
	return r != nil && r.isOpen()
}

func (s *site) source(name, url string) config.Source {
	c := config.Source{Name: name, Database: s.db.Address}
	c.Relay.Lease, c.Relay.SendTimeout, c.Relay.Poll = 20*time.Second, 10*time.Second, 100*time.Millisecond
	c.Targets = []config.Target{{Name: "shop", URL: url, Token: s.credentials.Token, NamespaceID: s.credentials.NamespaceID}}
	return c
}

// A source that is removed and comes back before it has ended waits for its end: the metrics
// of all sources stay readable (REL-021).
func TestASourceThatComesBackWaitsForItsEnd(t *testing.T) {
	one, other := newSite(t, dbtest.SQLite), newSite(t, dbtest.SQLite)
	between := newLink(t, one.url)
	between.keep.Store(true)
	with, without := config.Config{Sources: []config.Source{one.source("one", between.URL), other.source("other", other.url)}}, config.Config{Sources: []config.Source{other.source("other", other.url)}}
	s := supervise(t, with)
	one.enqueue("order")
	await(t, "a request is under way", between.held)
	old := s.find("one")
	s.load(without, "configuration applied")
	s.load(with, "configuration applied")
	for range 100 {
		s.scrape()
		if s.serves("one") {
			t.Fatal("the source is served twice")
		}
	}
	between.letGo()
	eventually(t, "the source is served again", func() bool { return s.serves("one") })
	await(t, "the old one has ended", old.done)
	if text := s.scrape(); strings.Count(text, `orbit_relay_shards_led{source="one"}`) != 1 {
		t.Errorf("metrics lack the source that came back:\n%s", text)
	}
}

// A source that is served well goes on when its new address cannot be opened, and metrics tell
// of sources that are not open (REL-021).
func TestAReloadDoesNotLeaveADatabaseForOneThatCannotBeOpened(t *testing.T) {
	shop := newSite(t, dbtest.SQLite)
	good := shop.source("shop", shop.url)
	lost := good
	lost.Name, lost.Database = "lost", "sqlite:"+filepath.Join(t.TempDir(), "none.db")
	s := supervise(t, config.Config{Sources: []config.Source{lost, good}})
	eventually(t, "the shop is served", func() bool { return s.serves("shop") })
	served := s.find("shop")
	for _, address := range []string{good.Database + ".typo", "mysql:relay:sesame@tcp(127.0.0.1:1)/shop", "mysql:foo"} {
		moved := good
		moved.Database = address
		s.load(config.Config{Sources: []config.Source{lost, moved}}, "configuration refused")
		if s.find("shop") != served {
			t.Errorf("%s: the source was replaced", address)
		}
	}
	if log := s.log.String(); !strings.Contains(log, "sources.shop.database: ") || strings.Contains(log, "sesame") {
		t.Errorf("the log shows no place, or a secret: %s", log)
	}
	seqs := shop.enqueue("order")
	eventually(t, "the row is delivered", func() bool { return shop.row(seqs[0]).State == outbox.Delivered })
	text := s.scrape()
	for source, open := range map[string]int{"shop": 1, "lost": 0} {
		if want := fmt.Sprintf("orbit_relay_source_open{source=%q} %d", source, open); !strings.Contains(text, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}
