// Command orbit-relay forwards the outbox of a business database to a task server.
package main

import "github.com/orbitkit/orbit/internal/cli"

var program = cli.Program{Root: newRoot, Mistakes: isMistake}

func main() { program.Main() }
