#!/usr/bin/env bash
# Soaks MINUTES long: tasks under load on every engine, while nodes, workers and database
# servers are killed, paused and restarted at random; at the same time outboxes, whose relays,
# servers and connections are killed, stopped and cut. It tells how far it is every 30 s, ends
# with a summary, and fails if anything is lost, doubled or in a wrong state. With
# ORBIT_SOAK_DONE_ROWS=10000000 the outboxes hold so many rows that were delivered long ago,
# which takes a while to make. Called by make soak, which supplies the servers. CI runs the
# same for seconds: go test -run 'TestSoak|TestRelayStorm'.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
minutes=${1:-30}
[[ $minutes =~ ^[1-9][0-9]{0,3}$ ]] || { echo "soak: SOAK_MINUTES must be a positive number, not '$minutes'" >&2; exit 2; }
rows=${ORBIT_SOAK_DONE_ROWS:-0}
[[ $rows =~ ^[0-9]{1,9}$ ]] || { echo "soak: ORBIT_SOAK_DONE_ROWS must be a number of rows, not '$rows'" >&2; exit 2; }

# To fill a table and to verify it takes a minute for some 100,000 rows, with -race.
ORBIT_FAULT_SECONDS=$((minutes * 60)) exec "${GO:-go}" test -race -count=1 -v -timeout "$((minutes + 30 + rows / 50000))m" \
    -run '^(TestSoak|TestRelayStorm)$' ./internal/faults
