#!/usr/bin/env bash
# Formats all C++ sources in place; with --check only says which ones are not formatted (exit 1).
set -euo pipefail
cd "$(dirname "$0")/.."
mode=(-i)
[ "${1:-}" = "--check" ] && mode=(--dry-run -Werror)
git ls-files -co --exclude-standard -- '*.h' '*.cc' '*.cu' '*.cuh' | xargs -r clang-format "${mode[@]}"
[ "${1:-}" = "--check" ] && echo "format ok"
exit 0
