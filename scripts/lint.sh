#!/usr/bin/env bash
# Checks formatting and runs staticcheck; make lint runs go vet before it. Staticcheck is
# no dependency of the module: it is fetched once, and without a network the check goes on
# without it and says so.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
go=${GO:-go}

unformatted=$(gofmt -l .)
if [[ -n $unformatted ]]; then
  printf 'lint: not formatted (make fmt mends it):\n%s\n' "$unformatted" >&2
  exit 1
fi

# missing says what was not checked for want of a network. In CI that is a failure.
missing() {
  echo "lint: $1" >&2
  [[ -z ${CI:-} ]] || exit 1
}

# The benches and some examples are modules of their own, whose libraries are fetched once.
# When go.mod has changed, theirs may have to follow: go mod tidy in their folder.
for module in bench/go.mod examples/*/go.mod; do
  folder=$(dirname "$module")
  if (cd "$folder" && "$go" mod download) 2>/dev/null; then
    (cd "$folder" && "$go" vet ./...)
  else
    missing "the libraries of $folder could not be fetched, so it was not checked"
  fi
done

bin=$PWD/.cache/bin/staticcheck-${STATICCHECK##*@}
mkdir -p "$bin"
if [[ ! -x $bin/staticcheck ]] && ! GOBIN=$bin "$go" install "$STATICCHECK" 2>"$bin/install.log"; then
  missing "staticcheck could not be fetched, so only gofmt and go vet were run"
  exit 0
fi
"$bin/staticcheck" ./...
