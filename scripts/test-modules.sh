#!/usr/bin/env bash
# Runs a test command in the product's module, and then in the examples that are modules of
# their own, as they show libraries which the product does not need:
#
#   scripts/test-modules.sh go test -race ./...
#
# Without a network the libraries of those may be missing; then they are left out, which is
# said, and in CI is a failure.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[[ $# -gt 0 ]] || { echo "usage: $0 command [argument ...]" >&2; exit 2; }

code=0
"$@" || code=$?
for module in examples/*/go.mod; do
  cd "$(dirname "$module")"
  if ! "${GO:-go}" mod download 2>/dev/null; then
    echo "test-modules: the libraries of $(dirname "$module") could not be fetched, so it was not tested" >&2
    [[ -z ${CI:-} ]] || code=1
  else
    "$@" || code=$?
  fi
  cd - >/dev/null
done
exit "$code"
