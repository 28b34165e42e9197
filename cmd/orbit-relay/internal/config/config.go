// Package config is what a relay process is told to do: the databases that it serves, the
// task servers that it sends to and the addresses that it listens on. Flags and a
// configuration file both become a [Config]. Nothing here connects to anything.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox/outboxtrace"
	"github.com/orbitkit/orbit/relay"
)

// A Config is what one relay process does. Its values are resolved: secrets have been
// read. Print none of it.
type Config struct {
	Listen  Listen
	Sources []Source // in ascending order of their names
}

// Only is the name of the source that flags and environment describe.
const Only = "default"

// A Source is one business database with an outbox, and where its rows go.
type Source struct {
	Name        string
	Database    string // address with its password: mysql:<DSN> or sqlite:<path>
	Connections int    // most connections to the database at one time; 0 means the default of the engine's pool
	Targets     []Target
	Relay       relay.Config // without hook, observer and log
}

// Forever is the one negative value of how long delivered rows are kept. Any other is a slip.
const Forever = -time.Second

// RetainRule is what holds for it.
const RetainRule = "retain must be more than zero, or -1s to keep delivered rows for ever"

// MinConnections is the least that a source's pool may be: a leader renews its lease, reads,
// settles and reads the operators' holds at the same time.
const MinConnections = 4

const maxConnections = 1000

// String names the source and shows no secret.
func (s Source) String() string { return "source " + s.Name }

// GoString is [Source.String].
func (s Source) GoString() string { return s.String() }

// A Target is a task server and namespace, with the credential for it.
type Target struct {
	Name          string
	URL           string
	Token         string
	NamespaceID   string
	AllowInsecure bool // plain http to a host that is not this one
}

// String names the target and shows no secret.
func (t Target) String() string { return "target " + t.Name }

// GoString is [Target.String].
func (t Target) GoString() string { return t.String() }

// Open returns the target with a client of its own, whose connections nobody shares. It
// does no I/O.
func (t Target) Open() (relay.Target, error) {
	client, err := orbit.NewClient(t.URL, t.Token, orbit.ClientConfig{
		AllowInsecure: t.AllowInsecure, MinimalBatchAnswers: true, Traceparent: outboxtrace.Traceparent,
	})
	if err != nil {
		return relay.Target{}, err
	}
	opened := relay.Target{Name: t.Name, Client: client, NamespaceID: t.NamespaceID}
	return opened, relay.ValidateTarget(opened)
}

// A Listen says what the process serves. Empty addresses serve nothing.
type Listen struct {
	Address string // host:port of nudges, health, status and the operators' interface
	Socket  string // path of a Unix socket for the same
	Metrics string // host:port of GET /metrics
	// Remote allows Address to be one that other machines reach; then all but health asks
	// for the token.
	Remote bool
	// Token opens the operators' interface; empty keeps it off.
	Token string
}

// String shows no secret.
func (l Listen) String() string { return "listen on " + cmp.Or(l.Address, l.Socket, "nothing") }

// GoString is [Listen.String].
func (l Listen) GoString() string { return l.String() }

// Places returns where the process listens, without the token, which may change while it
// runs.
func (l Listen) Places() Listen {
	l.Token = ""
	return l
}

// Bounds of an operators' token, in bytes.
const minToken, maxToken = 16, 512

// A Broken rule names the field that breaks it.
type Broken struct {
	Field string // address, metrics or token
	Rule  string
}

// Complete gives an address without a host the host 127.0.0.1, and returns every rule that
// is broken.
func (l *Listen) Complete() (broken []Broken) {
	if l.Address != "" {
		host, port, err := net.SplitHostPort(l.Address)
		switch {
		case err != nil:
			broken = append(broken, Broken{"address", fmt.Sprintf("address %q is not of the form host:port", l.Address)})
		case host == "":
			l.Address = net.JoinHostPort("127.0.0.1", port)
		case !isLoopback(host) && !l.Remote:
			broken = append(broken, Broken{"address", fmt.Sprintf("address %q must be on a loopback address such as 127.0.0.1: nudges ask for no credential", l.Address)})
		case l.Remote && l.Token == "":
			broken = append(broken, Broken{"address", "an address that other machines may reach needs a token"})
		}
	}
	if l.Metrics != "" {
		if _, _, err := net.SplitHostPort(l.Metrics); err != nil {
			broken = append(broken, Broken{"metrics", fmt.Sprintf("address %q is not of the form host:port", l.Metrics)})
		}
	}
	if l.Token != "" {
		if err := checkToken(l.Token); err != nil {
			broken = append(broken, Broken{"token", err.Error()})
		}
		if l.Address == "" && l.Socket == "" {
			broken = append(broken, Broken{"token", "the token of operators needs an address or a socket to listen on"})
		}
	}
	return broken
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func checkToken(token string) error {
	if len(token) < minToken || len(token) > maxToken {
		return fmt.Errorf("the token of operators must have %d to %d characters", minToken, maxToken)
	}
	for _, c := range []byte(token) {
		if c <= ' ' || c > '~' {
			return errors.New("the token of operators must be printable ASCII without blanks")
		}
	}
	return nil
}
