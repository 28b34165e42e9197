package config

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/relay"
)

// maxFile bounds a configuration file, in bytes.
const maxFile = 1 << 20

// Load reads a configuration file and the secrets that it refers to; get reads an
// environment variable. With any mistake there is no Config: all of them are returned, in
// the order of their lines.
func Load(path string, get func(string) string) (Config, []Mistake) {
	d := &document{file: path, lines: map[string]int{}}
	text, err := readFile(path, maxFile)
	if err != nil {
		d.add(0, "", err.Error())
		return Config{}, d.mistakes
	}
	f := &file{document: d, get: get, targets: map[string]Target{}}
	if root := d.open(text); root != nil {
		f.read(root)
	}
	if len(d.mistakes) > 0 {
		return Config{}, d.sorted()
	}
	return f.config, nil
}

// A file becomes a Config.
type file struct {
	*document
	get      func(string) string
	defaults relay.Config
	targets  map[string]Target
	config   Config
}

// read takes the parts in the order in which they build upon each other, whatever their
// order in the text.
func (f *file) read(root *yaml.Node) {
	parts := map[string]*yaml.Node{}
	keep := func(n *yaml.Node, path string) { parts[path] = n }
	f.object(root, "", map[string]reader{"listen": keep, "relay": keep, "targets": keep, "sources": keep})
	for _, part := range []struct {
		name string
		read reader
	}{{"listen", f.readListen}, {"relay", f.readRelay(&f.defaults)}, {"targets", f.readTargets}, {"sources", f.readSources}} {
		if n := parts[part.name]; n != nil {
			part.read(n, part.name)
		}
	}
	if len(f.mistakes) == 0 && len(f.config.Sources) == 0 {
		f.at("sources", "must name at least one database")
	}
	slices.SortFunc(f.config.Sources, func(a, b Source) int { return cmp.Compare(a.Name, b.Name) })
}

func (f *file) readListen(n *yaml.Node, path string) {
	var l Listen
	token := reference{what: "token"}
	before := len(f.mistakes)
	f.object(n, path, map[string]reader{
		"address": f.text(&l.Address), "socket": f.text(&l.Socket), "metrics": f.text(&l.Metrics),
		"allow_remote": f.boolean(&l.Remote), "token_file": f.text(&token.file), "token_env": f.text(&token.env),
	})
	l.Token = f.secret(path, token)
	if len(f.mistakes) > before {
		return // rules of fields that were not read would be beside the point
	}
	for _, b := range l.Complete() {
		if b.Field == token.what {
			b.Field = token.field()
		}
		f.at(path+"."+b.Field, b.Rule)
	}
	f.config.Listen = l
}

// readRelay reads over what stands in c: defaults of the process, or of a source.
func (f *file) readRelay(c *relay.Config) reader {
	return func(n *yaml.Node, path string) {
		f.object(n, path, map[string]reader{
			"name": f.text(&c.Name), "lease": f.duration(&c.Lease), "send_timeout": f.duration(&c.SendTimeout),
			"stop_timeout": f.duration(&c.StopTimeout), "senders": f.number(&c.Senders, 1, 64), "batch_rows": f.number(&c.BatchRows, 1, 100),
			"buffer_bytes": f.number(&c.BufferBytes, 1, 1<<30), "poll": f.duration(&c.Poll),
			"retry_first": f.duration(&c.RetryFirst), "retry_most": f.duration(&c.RetryMost),
			"pause_first": f.duration(&c.PauseFirst), "pause_most": f.duration(&c.PauseMost),
			"max_retry_after": f.duration(&c.MaxRetryAfter), "retain": f.duration(&c.Retain),
		})
	}
}

func (f *file) readTargets(n *yaml.Node, path string) {
	f.members(n, path, func(name string, n *yaml.Node, path string) {
		t := Target{Name: name}
		var credentials string
		token := reference{what: "token"}
		before := len(f.mistakes)
		f.object(n, path, map[string]reader{
			"url": f.text(&t.URL), "namespace": f.text(&t.NamespaceID), "allow_insecure": f.boolean(&t.AllowInsecure),
			"credentials_file": f.text(&credentials), "token_file": f.text(&token.file), "token_env": f.text(&token.env),
		})
		f.credential(path, &t, credentials, token)
		if t.URL == "" && len(f.mistakes) == before {
			f.at(path+".url", "is required: the credentials file names no server")
		}
		f.targets[name] = t
		if len(f.mistakes) > before {
			return
		}
		if _, err := t.Open(); err != nil {
			rule := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "relay: "), "orbit: ")
			f.at(path, strings.ReplaceAll(rule, "NamespaceID", "namespace"))
		}
	})
}

func (f *file) readSources(n *yaml.Node, path string) {
	f.members(n, path, func(name string, n *yaml.Node, path string) {
		s := Source{Name: name, Relay: f.defaults}
		var names []string
		var db databaseReference
		before := len(f.mistakes)
		f.object(n, path, map[string]reader{
			"database": f.text(&db.plain), "database_file": f.text(&db.whole.file), "database_env": f.text(&db.whole.env),
			"password_file": f.text(&db.password.file), "password_env": f.text(&db.password.env),
			"connections": f.number(&s.Connections, MinConnections, maxConnections),
			"targets":     f.list(&names), "relay": f.readRelay(&s.Relay),
		})
		if outbox.ValidateTarget(name) != nil || strings.Contains(name, ":") {
			f.at(path, "the name of a source must begin with a letter or digit, hold only letters, digits, '_', '.' and '-', and have at most 64")
		}
		s.Database = f.database(path, db)
		s.Targets = f.targetsOf(path, names)
		if len(f.mistakes) > before {
			return
		}
		f.checkRelay(path, s.Relay)
		f.config.Sources = append(f.config.Sources, s)
	})
}

// targetsOf returns the named targets, or all of them if none is named.
func (f *file) targetsOf(path string, names []string) (targets []Target) {
	if f.lines[path+".targets"] == 0 {
		for name := range f.targets {
			names = append(names, name)
		}
		slices.Sort(names)
	}
	for _, name := range names {
		t, known := f.targets[name]
		if !known {
			f.at(path+".targets", fmt.Sprintf("%q is none of the targets", name))
			continue
		}
		targets = append(targets, t)
	}
	if len(names) == 0 {
		f.at(path+".targets", "must name at least one target")
	}
	return targets
}

// checkRelay holds the numbers of a source against each other, in the words of the file.
func (f *file) checkRelay(path string, c relay.Config) {
	if c.Retain < 0 && c.Retain != Forever {
		f.at(path+".relay", RetainRule)
	}
	for _, rule := range RelayRules(c, "", "_") {
		f.at(path+".relay", rule)
	}
}

// RelayRules returns the rules that c breaks, in the words of a file or of flags: SendTimeout
// becomes send_timeout or --send-timeout.
func RelayRules(c relay.Config, before, between string) (rules []string) {
	err := c.Validate()
	if err == nil {
		return nil
	}
	for _, rule := range strings.Split(err.Error(), "\n") {
		rules = append(rules, goName.ReplaceAllStringFunc(strings.TrimPrefix(rule, "relay: "), func(name string) string {
			return before + strings.ToLower(inside.ReplaceAllString(name, "${1}"+between+"${2}"))
		}))
	}
	return rules
}

var (
	goName = regexp.MustCompile(`\b(Name|Lease|SendTimeout|StopTimeout|Senders|BatchRows|BufferBytes|Poll|RetryFirst|RetryMost|PauseFirst|PauseMost|MaxRetryAfter|Retain)\b`)
	inside = regexp.MustCompile(`([a-z])([A-Z])`)
)

// readFile reads a regular file of bounded size. Its error names neither path nor content.
func readFile(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, bare(err)
	}
	if !info.Mode().IsRegular() || info.Size() > most {
		return nil, fmt.Errorf("must be a regular file of at most %d bytes", most)
	}
	text, err := os.ReadFile(path)
	return text, bare(err)
}
