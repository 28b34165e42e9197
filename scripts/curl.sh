#!/usr/bin/env bash
# Makes sure that curl is there: a test runs the commands of docs/api.md as they are written.
set -euo pipefail
if command -v curl >/dev/null; then exit 0; fi
if command -v apt-get >/dev/null; then
  sudo=()
  [[ $(id -u) -eq 0 ]] || sudo=(sudo -n)
  echo "curl: installing curl" >&2
  if "${sudo[@]}" apt-get -qq update >&2 &&
    DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get -qq install -y --no-install-recommends curl >&2 </dev/null; then
    exit 0
  fi
fi
echo "curl: the test of docs/api.md needs curl: install it" >&2
exit 1
