#!/usr/bin/env bash
# Runs the quickstart COUNT times on each engine and stops at the first run whose invariant
# does not hold. Called by make soak-quickstart, which supplies the servers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
count=${1:-20}
[[ $count =~ ^[1-9][0-9]*$ ]] || { echo "soak-quickstart: COUNT must be a positive number, not '$count'" >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${GO:-go}" build -race -o "$work/quickstart" ./examples/quickstart

soak() {
  local engine=$1 run
  shift
  for ((run = 1; run <= count; run++)); do
    if ! "$work/quickstart" "$@" >"$work/log" 2>&1; then
      cat "$work/log" >&2
      echo "soak-quickstart: $engine failed in run $run of $count" >&2
      exit 1
    fi
    echo "soak-quickstart: $engine $run of $count ok"
  done
}

soak sqlite
soak mysql --mysql "$ORBIT_TEST_MYSQL_DSN"
soak mariadb --mysql "$ORBIT_TEST_MARIADB_DSN"
