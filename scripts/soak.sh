#!/usr/bin/env bash
# Soaks MINUTES long: tasks under load on every engine, while nodes, workers and database
# servers are killed, paused and restarted at random. It tells how far it is every 30 s,
# ends with a summary, and fails if anything is lost, doubled or in a wrong state. Called by
# make soak, which supplies the servers. CI runs the same for seconds: go test -run TestSoak.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
minutes=${1:-30}
[[ $minutes =~ ^[1-9][0-9]{0,3}$ ]] || { echo "soak: SOAK_MINUTES must be a positive number, not '$minutes'" >&2; exit 2; }

ORBIT_FAULT_SECONDS=$((minutes * 60)) exec "${GO:-go}" test -race -count=1 -v -timeout "$((minutes + 30))m" -run '^TestSoak$' ./internal/faults
