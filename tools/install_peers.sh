#!/usr/bin/env bash
# Makes a Python environment with the programs that the benchmarks compare with. Does nothing if it is there.
# Usage: install_peers.sh FOLDER
set -euo pipefail
folder=$1
packages=(torch torchvision tensorflow-cpu numpy)
stamp="$folder/horon-peers.txt"
wanted="${packages[*]}"
[ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && exit 0
python3 -m venv "$folder"
"$folder/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}"
echo "$wanted" >"$stamp"
"$folder/bin/python" -c 'import torch, torchvision, tensorflow; print("torch", torch.__version__, "tensorflow", tensorflow.__version__)' 2>/dev/null
