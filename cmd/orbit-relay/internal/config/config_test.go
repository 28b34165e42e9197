package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit/cmd/orbit-relay/internal/config"
)

const canary = "sesame-open-sesame"

// write puts a configuration into a file, in whose folder the file secret stands.
func write(t *testing.T, text string) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "secret"), []byte(canary+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "relay.yaml")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "$DIR", folder)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func environment(name string) string {
	return map[string]string{"SHOP": "mysql:relay:" + canary + "@tcp(127.0.0.1:3306)/shop", "TOKEN": canary}[name]
}

const whole = `
listen: {address: ":9801", socket: /run/orbit.sock, metrics: "10.0.0.1:9802", token_file: $DIR/secret}
relay: {lease: 20s, senders: 8, retain: 7d}
targets:
  warehouse: {url: "https://orbit.example", token_env: TOKEN, namespace: 0123456789abcdef0123456789abcdef}
  archive: {url: "http://127.0.0.1:1", token_file: $DIR/secret}
sources:
  shop: {database_env: SHOP, connections: 12, targets: [warehouse], relay: {senders: 2}}
  billing: {database: "mysql:relay@tcp(127.0.0.1:3306)/billing?tls=true", password_file: $DIR/secret}
  notes: {database: "sqlite:/var/lib/notes.db"}
`

func TestAFileBecomesAConfigWithItsSecretsRead(t *testing.T) {
	cfg, mistakes := config.Load(write(t, whole), environment)
	if len(mistakes) > 0 {
		t.Fatalf("Load = %v", mistakes)
	}
	if l := cfg.Listen; l.Address != "127.0.0.1:9801" || l.Socket != "/run/orbit.sock" || l.Metrics != "10.0.0.1:9802" || l.Token != canary {
		t.Errorf("an address without a host, or another field, is %+v", l.Places())
	}
	if len(cfg.Sources) != 3 || cfg.Sources[0].Name != "billing" || cfg.Sources[1].Name != "notes" || cfg.Sources[2].Name != "shop" {
		t.Fatalf("sources are %v", cfg.Sources)
	}
	billing, notes, shop := cfg.Sources[0], cfg.Sources[1], cfg.Sources[2]
	if billing.Database != "mysql:relay:"+canary+"@tcp(127.0.0.1:3306)/billing?tls=true" || notes.Database != "sqlite:/var/lib/notes.db" {
		t.Error("a database has another address than file and password make")
	}
	if shop.Database != environment("SHOP") || shop.Connections != 12 || len(shop.Targets) != 1 || shop.Targets[0].Token != canary {
		t.Errorf("shop is %v with %d connections and %v", shop, shop.Connections, shop.Targets)
	}
	if shop.Relay.Senders != 2 || shop.Relay.Lease != 20*time.Second || billing.Relay.Senders != 8 || billing.Relay.Retain != 7*24*time.Hour || len(billing.Targets) != 2 {
		t.Errorf("numbers of the process and of a source are mixed: %+v, %+v", shop.Relay, billing.Relay)
	}
}

// Every mistake has its line and its path, all are told at once, and none shows a secret.
func TestEveryMistakeIsToldWithItsPlace(t *testing.T) {
	const text = `listen:
  address: 0.0.0.0:9801
relay:
  lease: 10
  retain: 0s
  senders: 99
  speed: fast
targets:
  warehouse: {url: "http://orbit.example", token_env: TOKEN}
  warehouse: {}
  both: {url: "https://x.example", token_env: TOKEN, token_file: $DIR/secret}
  unset: {url: "https://x.example", token_env: NONE}
  missing: {url: "https://x.example", credentials_file: $DIR/none}
  bare: {url: "https://x.example"}
sources:
  shop: {database: "mysql:relay:sesame-open-sesame@tcp(h)/shop", connections: 3, targets: [nowhere]}
  a b: {database_file: $DIR/secret, database: "sqlite:x"}
  slow: {database: "sqlite:x", relay: {lease: 1s, send_timeout: 2s}}
  empty:
  odd: {database: 17, targets: [], password_env: TOKEN}
  raw: {database_env: TOKEN}
  slip: {database: "mysql:foo"}
  brief: {database: "sqlite:x", relay: {retain: -2s}}
  alias: &x {database: "sqlite:x"}
`
	_, mistakes := config.Load(write(t, text), environment)
	var all strings.Builder
	for _, m := range mistakes {
		all.WriteString(strings.TrimPrefix(m.Error(), filepath.Dir(m.File)+"/") + "\n")
	}
	if strings.Contains(all.String(), canary) {
		t.Errorf("a mistake shows a secret:\n%s", &all)
	}
	for _, want := range []string{
		"relay.yaml:2: listen.address: ", "relay.yaml:4: relay.lease: must be a duration", "relay.yaml:5: relay.retain: ", "relay.yaml:6: relay.senders: must be a whole number from 1 to 64",
		"relay.yaml:7: relay.speed: is unknown, known are batch_rows, ", "relay.yaml:9: targets.warehouse: server URL: must be https",
		"relay.yaml:10: targets.warehouse: is given twice, first in line 9", "relay.yaml:11: targets.both.token_env: must not stand beside",
		"relay.yaml:12: targets.unset.token_env: the environment variable NONE is not set", "relay.yaml:13: targets.missing.credentials_file: ",
		"relay.yaml:14: targets.bare.credentials_file: is required", "relay.yaml:16: sources.shop.database: must not hold a password",
		"relay.yaml:16: sources.shop.connections: must be a whole number from 4 to 1000", `relay.yaml:16: sources.shop.targets: "nowhere" is none of the targets`,
		"relay.yaml:17: sources.a b: the name of a source", "relay.yaml:17: sources.a b.database: must not stand beside",
		"relay.yaml:18: sources.slow.relay: send_timeout 2s must be more than zero and at most 0.6 of lease 1s",
		"relay.yaml:19: sources.empty: must be a mapping", "relay.yaml:20: sources.odd.database: must be a text", "relay.yaml:20: sources.odd.targets: must name at least one",
		"relay.yaml:21: sources.raw.database: must begin with", "relay.yaml:24: sources.alias: must be written out",
		"relay.yaml:22: sources.slip.database: invalid DSN", "relay.yaml:23: sources.brief.relay: retain must be",
	} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("no mistake is %q:\n%s", want, &all)
		}
	}
}

func TestAMistakeInTheTokenNamesTheFieldThatIsThere(t *testing.T) {
	for _, field := range []string{"token_env: SHORT", "token_file: $DIR/secret"} {
		text := "listen: {" + field + "}\ntargets: {w: {url: \"https://x.example\", token_env: TOKEN}}\nsources: {s: {database: \"sqlite:x\"}}\n"
		name, _, _ := strings.Cut(field, ":")
		_, mistakes := config.Load(write(t, text), func(name string) string { return canary })
		if len(mistakes) != 1 || !strings.Contains(mistakes[0].Error(), ":1: listen."+name+": ") {
			t.Errorf("%s: mistakes %v", field, mistakes)
		}
	}
}

func TestAFileThatIsNoDocumentHasOneMistake(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "is empty",
		"# only words\n":           "is empty",
		"a: [":                     "is no YAML",
		"sources: {}\n---\nb: 1\n": "must hold one document",
		"- a\n":                    "must be a mapping",
		"sources: {}\n":            "must name at least one database",
		"sources: *x\n":            "is no YAML",
	} {
		_, mistakes := config.Load(write(t, text), environment)
		if len(mistakes) != 1 || !strings.Contains(mistakes[0].Error(), want) {
			t.Errorf("%q: %v, want one mistake with %q", text, mistakes, want)
		}
	}
	if _, mistakes := config.Load(t.TempDir()+"/none.yaml", environment); len(mistakes) != 1 || !strings.Contains(mistakes[0].Error(), "none.yaml: no such file") {
		t.Errorf("a file that is not there: %v", mistakes)
	}
}

// FuzzLoad holds that no text makes the reader fail in another way than by mistakes.
func FuzzLoad(f *testing.F) {
	f.Add(whole)
	f.Add("a: &b [*b]\n<<: {}\n? [x]\n: y\n")
	f.Fuzz(func(t *testing.T, text string) {
		cfg, mistakes := config.Load(write(t, text), environment)
		if len(mistakes) == 0 && len(cfg.Sources) == 0 {
			t.Error("neither a source nor a mistake")
		}
	})
}
