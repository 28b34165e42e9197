#!/usr/bin/env bash
# Runs a command against a private MySQL, a private MariaDB and a private PostgreSQL that
# live as long as it (CLI-013):
#
#   scripts/test-mysql.sh go test -race ./...
#
# The servers listen on a free loopback port only, keep their data in a temporary folder
# and know one random user. The command finds them in ORBIT_TEST_MYSQL_DSN,
# ORBIT_TEST_MARIADB_DSN and ORBIT_TEST_POSTGRES_DSN and must not skip them
# (ORBIT_TEST_ALL_ENGINES=1). At the end, also after Ctrl-C, they are stopped by their process
# ids and the folder is removed. A server whose variable is set already is used as it is; one
# that is not needed is left out by setting it to none. ORBIT_TEST_DURABLE=1 keeps the data on disk
# and flushes every commit, as a production server does: benches ask for it.
set -euo pipefail
((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 404)) || { echo "test-mysql: needs bash 4.4 or newer" >&2; exit 1; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[[ $# -gt 0 ]] || { echo "usage: $0 command [argument ...]" >&2; exit 2; }

servers=()
postgres=() # its process among them
command_pid=
folder=

stop_servers() {
  local pid
  ((${#servers[@]})) || return 0
  kill -INT "${postgres[@]}" 2>/dev/null || true # on TERM it would wait for its clients
  kill -TERM "${servers[@]}" 2>/dev/null || true
  for pid in "${servers[@]}"; do
    for _ in {1..100}; do
      kill -0 "$pid" 2>/dev/null || continue 2
      sleep 0.1
    done
    kill -KILL "$pid" 2>/dev/null || true
  done
}

clean_up() {
  local code=$?
  trap '' INT TERM HUP
  [[ -z $command_pid ]] || kill -TERM -- "-$command_pid" 2>/dev/null || true
  stop_servers
  [[ -z $folder ]] || rm -rf "$folder"
  exit "$code"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# What tests trade for speed and benches must not.
durability=(--innodb-flush-log-at-trx-commit=0 --innodb-doublewrite=0 --innodb-file-per-table=0 --innodb-buffer-pool-size=256M)
[[ -z ${ORBIT_TEST_DURABLE:-} ]] || durability=(--innodb-flush-log-at-trx-commit=1 --innodb-buffer-pool-size=1G)

random() { od -An -N"$1" -tx1 /dev/urandom | tr -d ' \n'; }

# make_folder prefers memory: the data is worth nothing after the run.
make_folder() {
  local free
  free=$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 {print $4}') || true
  if [[ -z ${ORBIT_TEST_DURABLE:-} && -w /dev/shm && ${free:-0} -gt 3000000 ]]; then
    folder=$(mktemp -d /dev/shm/orbit-test-servers.XXXXXX)
  else
    folder=$(mktemp -d "${TMPDIR:-/tmp}/orbit-test-servers.XXXXXX")
  fi
  chmod 711 "$folder" # PostgreSQL runs as another user than root
}

free_port() {
  local port
  while :; do
    port=$((20000 + RANDOM % 12000))
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return; }
  done
}

find_mariadb() {
  local path
  path=$(command -v mariadbd || command -v /usr/sbin/mariadbd || true)
  [[ -n $path && -n $(command -v mariadb-install-db || true) ]]
}

need_mariadb() {
  local sudo=()
  find_mariadb && return
  if command -v apt-get >/dev/null; then
    [[ $(id -u) -eq 0 ]] || sudo=(sudo -n)
    echo "test-mysql: installing mariadb-server-core" >&2
    if "${sudo[@]}" apt-get -qq update >&2 &&
      DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get -qq install -y --no-install-recommends mariadb-server-core >&2 </dev/null; then
      find_mariadb && return
    fi
  fi
  cat >&2 <<'TXT'
test-mysql: no MariaDB server. Install MariaDB 10.6 or newer so that mariadbd and
mariadb-install-db are in PATH (Debian, Ubuntu: apt-get install mariadb-server-core; macOS:
brew install mariadb), or offer a running server on which databases may be created:
ORBIT_TEST_MARIADB_DSN='user:password@tcp(127.0.0.1:3306)/'.
TXT
  exit 1
}

# find_postgres sets initdb to the newest of the machine; Debian keeps it out of PATH.
find_postgres() {
  initdb=$(command -v initdb || printf '%s\n' /usr/lib/postgresql/*/bin/initdb | sort -V | tail -n 1)
  [[ -x $initdb ]]
}

need_postgres() {
  local sudo=()
  find_postgres && return
  if command -v apt-get >/dev/null; then
    [[ $(id -u) -eq 0 ]] || sudo=(sudo -n)
    echo "test-mysql: installing postgresql" >&2
    if "${sudo[@]}" apt-get -qq update >&2 &&
      DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get -qq install -y --no-install-recommends postgresql >&2 </dev/null; then
      find_postgres && return
    fi
  fi
  cat >&2 <<'TXT'
test-mysql: no PostgreSQL server. Install PostgreSQL 15 or newer so that initdb and postgres
are in PATH (Debian, Ubuntu: apt-get install postgresql; macOS: brew install postgresql), or
offer a running server on which schemas may be created:
ORBIT_TEST_POSTGRES_DSN='postgres://user:password@127.0.0.1:5432/database'.
TXT
  exit 1
}

# in_tmp NAME command...: runs it with a folder of its own for temporary files. A MariaDB that
# starts removes all temporary tables that it finds, also those of a neighbour that is running,
# which fails or crashes then.
in_tmp() {
  local tmp="$folder/$1.tmp"
  shift
  mkdir -p "$tmp"
  TMPDIR="$tmp" exec "$@"
}

# start NAME PORT command...: starts a server on its data folder and waits until it
# accepts; returns 1 if it ended instead, for instance as another process took the port.
start() {
  local name=$1 port=$2
  shift 2
  in_tmp "$name" "$@" --datadir="$folder/$name" --port="$port" --bind-address=127.0.0.1 --skip-name-resolve \
    --socket="$folder/$name.sock" --pid-file="$folder/$name.pid" --init-file="$folder/init.sql" \
    --max-connections=1000 "${durability[@]}" --secure-file-priv="$folder" >"$folder/$name.log" 2>&1 </dev/null &
  await "$name" $!
}

# await NAME PID: waits until a server accepts; returns 1 if it ended instead.
await() {
  local name=$1 pid=$2
  for _ in {1..600}; do
    kill -0 "$pid" 2>/dev/null || return 1
    if grep -q 'ready \(for\|to accept\) connections' "$folder/$name.log"; then
      servers+=("$pid")
      return 0
    fi
    sleep 0.1
  done
  kill -KILL "$pid" 2>/dev/null || true
  return 1
}

# start_somewhere NAME command...: start on a free port; prints nothing, sets port.
start_somewhere() {
  local name=$1
  shift
  for _ in {1..5}; do
    port=$(free_port)
    if start "$name" "$port" "$@"; then return; fi
  done
  echo "test-mysql: $name does not start:" >&2
  tail -n 20 "$folder/$name.log" >&2
  exit 1
}

user=(); [[ $(id -u) -ne 0 ]] || user=(--user=root)

run_mysql() {
  local found words base=()
  found=$("$here/mysql-server.sh") || exit 1
  IFS=$'\t' read -r -a words <<<"${found%%$'\n'*}"
  found=${found#*$'\n'}
  if [[ -n $found ]]; then
    base=(--basedir="$found" --lc-messages-dir="$found/share/mysql" --character-sets-dir="$found/share/mysql/charsets")
  fi
  words+=(--no-defaults "${user[@]}" "${base[@]}")
  if ! (in_tmp mysql "${words[@]}" --initialize-insecure --datadir="$folder/mysql") >"$folder/mysql.log" 2>&1; then
    tail -n 20 "$folder/mysql.log" >&2
    exit 1
  fi
  start_somewhere mysql "${words[@]}" --mysqlx=OFF --disable-log-bin
  export ORBIT_TEST_MYSQL_DSN="orbit:$password@tcp(127.0.0.1:$port)/"
}

run_mariadb() {
  need_mariadb
  local server
  server=$(command -v mariadbd || echo /usr/sbin/mariadbd)
  if ! (in_tmp mariadb mariadb-install-db --no-defaults "${user[@]}" --datadir="$folder/mariadb" --auth-root-authentication-method=normal \
    --skip-test-db) >"$folder/mariadb.log" 2>&1; then
    tail -n 20 "$folder/mariadb.log" >&2
    exit 1
  fi
  start_somewhere mariadb "$server" --no-defaults "${user[@]}" --skip-log-bin
  export ORBIT_TEST_MARIADB_DSN="orbit:$password@tcp(127.0.0.1:$port)/"
}

# run_postgres starts PostgreSQL as a user of its own if this is root, whom it refuses.
run_postgres() {
  local as=() data=$folder/postgres initdb port
  need_postgres
  mkdir -m 700 "$data"
  (umask 077 && printf '%s' "$password" >"$folder/postgres.password")
  if [[ $(id -u) -eq 0 ]]; then
    as=(setpriv --reuid=postgres --regid=postgres --init-groups)
    chown postgres "$data" "$folder/postgres.password"
  fi
  if ! (cd "$folder" && "${as[@]}" "$initdb" -D "$data" -U orbit -A scram-sha-256 --pwfile="$folder/postgres.password" \
    -E UTF8 --locale=C --no-sync) >"$folder/postgres.log" 2>&1; then
    tail -n 20 "$folder/postgres.log" >&2
    exit 1
  fi
  for _ in {1..5}; do
    port=$(free_port)
    (cd "$folder" && exec "${as[@]}" "${initdb%initdb}postgres" -D "$data" -p "$port" -c listen_addresses=127.0.0.1 \
      -c unix_socket_directories= -c fsync=off -c max_connections=300 -c deadlock_timeout=200ms) >"$folder/postgres.log" 2>&1 </dev/null &
    postgres=($!)
    if await postgres "${postgres[0]}"; then
      export ORBIT_TEST_POSTGRES_DSN="postgres://orbit:$password@127.0.0.1:$port/postgres?sslmode=disable"
      return
    fi
  done
  echo "test-mysql: postgres does not start:" >&2
  tail -n 20 "$folder/postgres.log" >&2
  exit 1
}

make_folder
password=$(random 16)
# root exists without a password after both initialisers: nobody shall use it.
(umask 077 && cat >"$folder/init.sql" <<SQL
CREATE USER IF NOT EXISTS 'orbit'@'127.0.0.1' IDENTIFIED BY '$password';
GRANT ALL PRIVILEGES ON *.* TO 'orbit'@'127.0.0.1' WITH GRANT OPTION;
ALTER USER 'root'@'localhost' IDENTIFIED BY '$(random 16)';
SQL
)
[[ -n ${ORBIT_TEST_MYSQL_DSN:-} ]] || run_mysql
[[ -n ${ORBIT_TEST_MARIADB_DSN:-} ]] || run_mariadb
[[ -n ${ORBIT_TEST_POSTGRES_DSN:-} ]] || run_postgres
export ORBIT_TEST_ALL_ENGINES=1

set -m # a process group of its own, so that it can be stopped whole
"$@" </dev/null &
command_pid=$!
set +m
code=0
wait "$command_pid" || code=$?
command_pid=
exit "$code"
