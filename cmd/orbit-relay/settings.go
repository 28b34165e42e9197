package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/cmd/orbit-relay/internal/config"
	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/internal/drivers"
	"github.com/orbitkit/orbit/relay"
)

// The names of the environment variables (CLI-015).
const (
	envDatabase      = "ORBIT_RELAY_DATABASE"
	envDSN           = "ORBIT_RELAY_MYSQL_DSN"
	envURL           = "ORBIT_URL"
	envToken         = "ORBIT_TOKEN"
	envCredentials   = "ORBIT_CREDENTIALS_FILE"
	envOperatorToken = "ORBIT_RELAY_OPERATOR_TOKEN"
	envOperatorFile  = "ORBIT_RELAY_OPERATOR_TOKEN_FILE"
)

// An environment is that of the process, and where to find the configuration.
type environment struct {
	cli.Environment
	place *place
}

// A place says which source of which configuration file is meant; without a file, the one
// that the environment names.
type place struct{ config, source string }

// settings are what flags say about relaying from one source.
type settings struct {
	flags         *pflag.FlagSet
	cfg           relay.Config
	target        string
	namespace     string
	allowInsecure bool
	listen        config.Listen
}

func (s *settings) register(flags *pflag.FlagSet) {
	s.flags = flags
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

func (s *settings) registerListen(flags *pflag.FlagSet) {
	flags.StringVar(&s.listen.Address, "nudge-address", "", "loopback `host:port` for nudges, health, status and operators (default none)")
	flags.StringVar(&s.listen.Socket, "nudge-socket", "", "`path` of a Unix socket for the same (default none)")
	flags.StringVar(&s.listen.Metrics, "metrics-address", "", "`host:port` for GET /metrics of Prometheus (default none)")
}

// read returns what the process is to do, or every mistake in it. It reads files again each
// time, and connects to nothing.
func (s *settings) read(env environment) (config.Config, []error) {
	if env.place.source != "" {
		return config.Config{}, []error{errors.New("--source goes with the commands of operators: this one is for all sources")}
	}
	if env.place.config == "" {
		return s.readFlags(env)
	}
	if foreign := s.foreign(); len(foreign) > 0 {
		return config.Config{}, []error{fmt.Errorf("--config goes without %s: the file says it all", strings.Join(foreign, " and "))}
	}
	return readFile(env)
}

// readFile reads the configuration file.
func readFile(env environment) (config.Config, []error) {
	cfg, mistakes := config.Load(env.place.config, env.Get)
	var all []error
	for _, m := range mistakes {
		all = append(all, m)
	}
	return cfg, all
}

// foreign returns the flags that were set beside --config.
func (s *settings) foreign() (names []string) {
	s.flags.Visit(func(f *pflag.Flag) {
		if f.Name != "config" && f.Name != "json" {
			names = append(names, "--"+f.Name)
		}
	})
	return names
}

// readFlags makes one source of flags and environment.
func (s *settings) readFlags(env environment) (cfg config.Config, mistakes []error) {
	note := func(err error) {
		if err != nil {
			mistakes = append(mistakes, oneLine(err))
		}
	}
	source := config.Source{Name: config.Only, Relay: s.cfg}
	var err error
	source.Database, err = drivers.FromEnvironment(env.Get, envDatabase, envDSN)
	note(err)
	target, err := s.readTarget(env)
	if err == nil {
		_, err = target.Open()
		err = inFlags(err)
	}
	note(err)
	source.Targets = []config.Target{target}
	for _, rule := range config.RelayRules(s.cfg, "--", "-") {
		note(errors.New(rule))
	}
	if s.cfg.Retain < 0 && s.cfg.Retain != config.Forever {
		note(errors.New("--" + config.RetainRule))
	}
	listen := s.listen
	listen.Token, err = readOperatorToken(env)
	note(err)
	for _, b := range listen.Complete() {
		name := map[string]string{"address": "--nudge-address", "metrics": "--metrics-address", "token": envOperatorToken}[b.Field]
		note(fmt.Errorf("%s: %s", name, b.Rule))
	}
	return config.Config{Listen: listen, Sources: []config.Source{source}}, mistakes
}

// inFlags puts what is wrong with a target in the words of flags.
func inFlags(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(strings.NewReplacer("relay: target", "--target", "NamespaceID", "--namespace").Replace(err.Error()))
}

func (s *settings) readTarget(env environment) (config.Target, error) {
	credentials, err := readCredentials(env)
	if err != nil {
		return config.Target{}, err
	}
	url := cmp.Or(env.Get(envURL), credentials.URL)
	if url == "" {
		return config.Target{}, fmt.Errorf("set %s to the address of the task server", envURL)
	}
	return config.Target{
		Name: s.target, URL: url, Token: credentials.Token,
		NamespaceID: cmp.Or(s.namespace, credentials.NamespaceID), AllowInsecure: s.allowInsecure,
	}, nil
}

func readCredentials(env environment) (orbit.Credentials, error) {
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

// readOperatorToken returns the token that opens the operators' interface, or none.
func readOperatorToken(env environment) (string, error) {
	token, file := env.Get(envOperatorToken), env.Get(envOperatorFile)
	switch {
	case token != "" && file != "":
		return "", fmt.Errorf("%s and %s are both set: set one of them", envOperatorToken, envOperatorFile)
	case file != "":
		token, err := config.ReadSecret(file)
		if err != nil {
			return "", fmt.Errorf("%s: %w", envOperatorFile, err)
		}
		return token, nil
	}
	return token, nil
}

// oneLine puts joined errors on one line.
func oneLine(errs ...error) error {
	var all []string
	for _, err := range errs {
		all = append(all, strings.Split(err.Error(), "\n")...)
	}
	return errors.New(strings.Join(all, "; "))
}
