#!/usr/bin/env bash
# dwell.el against the real server and a real profile.   e2e.sh [EMACS]
# DWELL_TEST_ONLY: an ERT selector, as in '"changed"'. Takes DWELL_TEST_SERVER, DWELL_TEST_DB and DWELL_TEST_FILE (see dwell-e2e-test.el); without them, if the checkout is
# built, it records a workload of its own. Where neither can be: one line `SKIPPED emacs-e2e: reason`.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
emacs=${1:-emacs}
top=$(dirname "$here")
target=${CARGO_TARGET_DIR:-$top/target}

skip() { echo "SKIPPED emacs-e2e: $1"; exit 0; }

provide() {
  export DWELL_TEST_SERVER=${DWELL_TEST_SERVER:-$top/lsp-server/dist/server.js}
  local dwell=$target/release/dwell
  [ -x "$dwell" ] || dwell=$target/debug/dwell
  export DWELL_TEST_DWELL=${DWELL_TEST_DWELL:-$dwell}
  [ -r "$DWELL_TEST_SERVER" ] || skip "$DWELL_TEST_SERVER is not built"
  [ -x "$DWELL_TEST_DWELL" ] || skip "$DWELL_TEST_DWELL is not built"
  command -v gcc >/dev/null || skip 'gcc is not installed'
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  cp "$top"/test-fixtures/programs/{chase.c,workload.h} "$work"
  export DWELL_TEST_FILE=$work/chase.c DWELL_TEST_DB=$work/db
  DWELL_TEST_LINE=$(grep -n HOT "$DWELL_TEST_FILE" | cut -d: -f1)
  export DWELL_TEST_LINE
  gcc -O2 -g -o "$work/chase" "$DWELL_TEST_FILE"
  for name in e2e-before e2e-after; do
    "$DWELL_TEST_DWELL" --db "$DWELL_TEST_DB" record --name $name -- "$work/chase" >"$work/log" 2>&1 ||
      skip "dwell record: $(tail -n 1 "$work/log")"
  done
}

[ -n "${DWELL_TEST_SERVER:-}" ] && [ -n "${DWELL_TEST_DB:-}" ] && [ -n "${DWELL_TEST_FILE:-}" ] || provide
"$emacs" -Q --batch -L "$here" -L "$here/test" -l dwell-e2e-test --eval "(ert-run-tests-batch-and-exit ${DWELL_TEST_ONLY:-t})"
