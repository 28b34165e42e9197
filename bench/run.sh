#!/usr/bin/env bash
# Runs the benches on a private MySQL that flushes each commit to disk, as a production
# server does, and prints ratios. Takes some minutes; needs a quiet machine.
#
#   bench/run.sh [-pairs 9] [-rows 20000] [enqueue|relay|forward|growth|wake|purge|lull|submit|batch|reading|drain|finish|nodes|backlog|start|idle|all]
#
# A server of your own: ORBIT_BENCH_DSN='user:password@tcp(127.0.0.1:3306)/' bench/run.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
if [[ -n ${ORBIT_BENCH_DSN:-} ]]; then
  exec go run . "$@"
fi
# A MariaDB that is never asked for is named, so that none is started.
ORBIT_TEST_DURABLE=1 ORBIT_TEST_MARIADB_DSN=none exec ../scripts/test-mysql.sh \
  bash -c 'ORBIT_BENCH_DSN=$ORBIT_TEST_MYSQL_DSN exec go run . "$@"' bench "$@"
