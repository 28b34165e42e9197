#!/usr/bin/env bash
# Finds a real MySQL server, or unpacks one into a folder of its own, and prints two
# lines: the command that runs mysqld (words separated by tabs) and its base directory
# (empty: the server knows). Nothing is installed on the machine.
#
# Looked for, in this order: $ORBIT_MYSQLD, a mysqld in PATH that is MySQL (Debian's is
# MariaDB), the cache folder, the package mysql-server-core of Ubuntu or of Debian.
set -euo pipefail
((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 404)) || { echo "mysql-server: needs bash 4.4 or newer" >&2; exit 1; }

cache=${ORBIT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/orbit}/mysql

is_mysql() { "$@" --no-defaults --version 2>/dev/null | grep -qv -i mariadb; }

found() {
  local IFS=$'\t'
  printf '%s\n' "${*:2}" "$1"
  exit 0
}

give_up() {
  cat >&2 <<TXT
mysql-server: no real MySQL server: $1
Install MySQL 8.0.16 or newer (https://dev.mysql.com/downloads/mysql/) so that mysqld is in
PATH, or name its binary in ORBIT_MYSQLD. Or offer a running server on which databases may
be created: ORBIT_TEST_MYSQL_DSN='user:password@tcp(127.0.0.1:3306)/'.
TXT
  exit 1
}

# try_unpacked looks into the cache. The unpacked server runs with its own loader and
# libraries, since it may come from a newer release than the machine's.
try_unpacked() {
  local loader server libraries
  server=$cache/usr/sbin/mysqld
  [[ -x $server ]] || return 0
  loader=$(find "$cache" -name 'ld-linux*.so.*' -print -quit)
  libraries=$(find "$cache" -type d -name '*-linux-gnu*' -path '*/lib/*' -printf '%p:')$cache/usr/lib
  is_mysql "$loader" --library-path "$libraries" "$server" || return 0
  found "$cache/usr" "$loader" --library-path "$libraries" "$server"
}

# choose_source sets package and the options with which apt finds it.
choose_source() {
  local p
  for p in mysql-server-core mysql-server-core-8.4 mysql-server-core-8.0; do
    if apt-cache policy "$p" 2>/dev/null | grep -q 'Candidate: [0-9]'; then
      package=$p
      return
    fi
  done
  local keys=/usr/share/keyrings/debian-archive-keyring.gpg mirror
  [[ -f $keys ]] || give_up "apt knows no mysql-server-core"
  # Debian ships MySQL in its unstable release only: read that, beside the machine's lists.
  mirror=$(apt-get indextargets --format '$(SITE)' 2>/dev/null | grep '/debian/*$' | head -n 1) || true
  package=mysql-server-core
  [[ -n $mirror ]] || give_up "apt has no Debian mirror among its sources"
  echo "deb [signed-by=$keys] $mirror sid main" >"$work/source.list"
  apt_options=(-o "Dir::Etc::sourcelist=$work/source.list" -o Dir::Etc::sourceparts=/dev/null
    -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=)
  mkdir -p "$work/lists/partial" "$work/cache"
  apt-get "${apt_options[@]}" -qq update >&2 || give_up "cannot read $mirror"
}

# dependencies lists the package and all that it needs to run; perl is for its scripts.
dependencies() {
  apt-cache "${apt_options[@]}" depends --recurse --no-recommends --no-suggests --no-conflicts \
    --no-breaks --no-replaces --no-enhances "$package" |
    awk '/^[a-z0-9]/ && !/^(lib)?perl/ {print $1}' | sort -u
}

unpack() {
  local names deb
  choose_source
  mapfile -t names < <(dependencies)
  mkdir -p "$work/debs" "$work/root"
  echo "mysql-server: downloading $package into $cache (once)" >&2
  (cd "$work/debs" && apt-get "${apt_options[@]}" -qq download "${names[@]}" >&2) || give_up "cannot download $package"
  for deb in "$work"/debs/*.deb; do dpkg -x "$deb" "$work/root"; done
  rm -rf "$cache"
  mv "$work/root" "$cache"
}

for candidate in "${ORBIT_MYSQLD:-}" "$(command -v mysqld || true)" /usr/sbin/mysqld; do
  if [[ -n $candidate && -x $candidate ]] && is_mysql "$candidate"; then found '' "$candidate"; fi
done
try_unpacked
command -v apt-get >/dev/null && command -v dpkg >/dev/null || give_up "none in PATH, and this is not Debian or Ubuntu"
mkdir -p "$(dirname "$cache")"
exec 9>"$cache.lock"
flock 9 # two runs at once unpack once
try_unpacked
work=$(mktemp -d "$cache.XXXXXX")
trap 'rm -rf "$work"' EXIT
apt_options=()
unpack
try_unpacked
give_up "the unpacked server does not start on this machine"
