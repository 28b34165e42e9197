#!/usr/bin/env bash
# Runs the model of lease and guard through Spin under each set of switches, and fails if a
# claim that must hold is broken, or one that must be broken holds. README.md beside this
# file explains the claims. Needs spin and a C compiler; takes about half a minute.
#
#   docs/model/check.sh            all
#   docs/model/check.sh LEASE      one set of switches, with its trace
set -euo pipefail
model=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/guard.pml
for tool in spin "${CC:-cc}"; do
  command -v "$tool" >/dev/null || {
    echo "model: no $tool. Install the model checker Spin and a C compiler (Debian, Ubuntu: apt-get install spin gcc; macOS: brew install spin)" >&2
    exit 1
  }
done
folder=$(mktemp -d "${TMPDIR:-/tmp}/orbit-model.XXXXXX")
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cp "$model" guard.pml

# run SWITCH...: the whole search, breadth first, so that a trace is as short as it can be.
# Prints the broken assertion, or nothing.
run() {
  rm -f ./*.trail
  spin -a "${@/#/-D}" guard.pml >spin.log || { cat spin.log >&2; exit 1; }
  "${CC:-cc}" -O2 -w -DSAFETY -DBFS -DCOLLAPSE -o pan pan.c
  ./pan -m1000000 >pan.log || { cat pan.log >&2; exit 1; }
  if ! grep -q 'errors: [01]$' pan.log || grep -q 'Search not completed' pan.log && ! [[ -e guard.pml.trail ]]; then
    cat pan.log >&2
    exit 1
  fi
  [[ ! -e guard.pml.trail ]] || spin -t -B "${@/#/-D}" guard.pml | sed -n 's/.*text of failed assertion: //p'
}

trace() { spin -t -B "${@/#/-D}" guard.pml | grep -E '^ *(server|worker|resource|reconciler): ' | sed 's/^ */    /'; }

# expect CLAIM SWITCH...: the assertion that is to break has CLAIM in it; "holds" if none.
failures=0
expect() {
  local want=$1 got
  shift
  got=$(run "$@")
  if [[ $want == holds && -z $got ]]; then
    printf 'holds       %-18s %s states\n' "${*:-(guard alone)}" "$(sed -n 's/^ *\([0-9]*\) states, stored.*/\1/p' pan.log)"
  elif [[ $want != holds && $got == *"$want"* ]]; then
    printf 'is broken   %-18s as expected: %s\n' "$*" "$got"
    trace "$@"
  else
    printf 'WRONG       %-18s %s, expected: %s\n' "$*" "${got:-holds}" "$want" >&2
    failures=$((failures + 1))
  fi
}

if (($#)); then
  run "$@"
  [[ ! -e guard.pml.trail ]] || trace "$@"
  exit
fi
expect holds
expect holds RAISE
expect holds RAISE OVERLAP
expect holds RESTORE DRILL
expect 'granted==(a+1)' LEASE           # what a guard cannot refuse
expect 'granted==(a+1)' RAISE LEASE     # nor with a raise: the window is smaller
expect 'begun[' OVERLAP                 # what the raise is for
expect '>=seen' RESTORE                 # what the restore drill is for
expect '>=seen' TWO_STEPS               # broken on purpose, to see that the checker can tell
expect '<=1' FORGETFUL
expect '>absent[' HASTY
((failures == 0)) || { echo "model: $failures expectations failed" >&2; exit 1; }
