#!/usr/bin/env bash
# Runs the benches on a private MySQL (guard: and a MariaDB) that flushes each commit to
# disk, as a production server does, and prints ratios. Takes some minutes; needs a quiet
# machine.
#
#   bench/run.sh [-pairs 9] [-rows 20000] [enqueue|relay|forward|growth|wake|purge|lull|submit|batch|reading|drain|finish|nodes|backlog|start|idle|guard|all]
#
# Servers of your own: ORBIT_BENCH_DSN='user:password@tcp(127.0.0.1:3306)/' bench/run.sh, and
# ORBIT_BENCH_MARIADB_DSN for guard
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
if [[ -n ${ORBIT_BENCH_DSN:-} ]]; then
  exec go run . "$@"
fi
# Only guard needs a MariaDB, too; benches start PostgreSQL themselves. A server that is
# named is not started.
mariadb=
if [[ ${*: -1} =~ ^[a-z]+$ && ! ${*: -1} =~ ^(guard|all)$ ]]; then mariadb=none; fi
ORBIT_TEST_DURABLE=1 ORBIT_TEST_MARIADB_DSN=$mariadb ORBIT_TEST_POSTGRES_DSN=none exec ../scripts/test-mysql.sh \
  bash -c 'ORBIT_BENCH_DSN=$ORBIT_TEST_MYSQL_DSN ORBIT_BENCH_MARIADB_DSN=$ORBIT_TEST_MARIADB_DSN exec go run . "$@"' bench "$@"
