// Command orbit-admin is for the people who run a task server: it makes applications,
// queues and credentials, stops and starts them, shows and settles tasks, and examines the
// database.
package main

import (
	"errors"

	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/server"
)

var program = cli.Program{Root: newRoot, Mistakes: isMistake, Variables: variables}

func main() { program.Main() }

// isMistake reports a request that is wrong as it stands.
func isMistake(err error) bool {
	var invalid *server.InvalidError
	return errors.As(err, &invalid) || errors.Is(err, server.ErrMissing) || errors.Is(err, server.ErrNoPlace)
}
