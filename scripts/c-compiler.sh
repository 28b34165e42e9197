#!/usr/bin/env bash
# Makes sure that a C compiler is there: Go's race detector needs one.
set -euo pipefail
if command -v "${CC:-gcc}" >/dev/null || command -v clang >/dev/null; then exit 0; fi
if command -v apt-get >/dev/null; then
  sudo=()
  [[ $(id -u) -eq 0 ]] || sudo=(sudo -n)
  echo "c-compiler: installing gcc" >&2
  if "${sudo[@]}" apt-get -qq update >&2 &&
    DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get -qq install -y --no-install-recommends gcc libc6-dev >&2 </dev/null; then
    exit 0
  fi
fi
echo "c-compiler: go test -race needs a C compiler: install gcc or clang" >&2
exit 1
