// Command orbit-migrate applies Orbit's schema to a database and shows how far it is.
package main

import (
	"errors"

	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/migrations"
)

var program = cli.Program{Root: newRoot, Mistakes: isMistake, Variables: variables}

func main() { program.Main() }

// isMistake reports a schema that this release does not fit.
func isMistake(err error) bool {
	var newer *migrations.VersionError
	var changed *migrations.ChangedError
	return errors.As(err, &newer) || errors.As(err, &changed)
}
