#!/usr/bin/env bash
# Makes sure that libfaketime is there, by which a test sets the clock of a database server.
# Where it cannot be had, that test is skipped and says so.
set -euo pipefail
found() { compgen -G '/usr/lib/*/faketime/libfaketimeMT.so.1' || compgen -G '/usr/lib/faketime/libfaketimeMT.so.1'; }
if [[ $(uname) != Linux ]] || found >/dev/null || ! command -v apt-get >/dev/null; then exit 0; fi
sudo=()
[[ $(id -u) -eq 0 ]] || sudo=(sudo -n)
echo "libfaketime: installing libfaketime" >&2
if "${sudo[@]}" apt-get -qq update >&2 &&
  DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get -qq install -y --no-install-recommends libfaketime >&2 </dev/null; then
  exit 0
fi
echo "libfaketime: it cannot be installed: the test of a database's clock will be skipped" >&2
