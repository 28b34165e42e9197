// Command orbit is a task server node.
package main

import "github.com/orbitkit/orbit/internal/cli"

var program = cli.Program{Root: newRoot}

func main() { program.Main() }
