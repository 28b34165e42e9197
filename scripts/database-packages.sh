#!/usr/bin/env bash
# Prints the packages whose tests use databases.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
"${GO:-go}" list -f '{{.ImportPath}} {{.TestImports}} {{.XTestImports}}' ./... |
  awk '/orbit\/internal\/dbtest/ {print $1}'
