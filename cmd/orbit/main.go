// Command orbit is a task server node.
package main

import "github.com/orbitkit/orbit/internal/cli"

var program = cli.Program{Root: newRoot, Variables: variables}

func main() { program.Main() }
