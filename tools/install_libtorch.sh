#!/usr/bin/env bash
# Puts LibTorch (headers and the CPU libraries) into a cache folder outside the checkout and prints that folder.
# Does nothing when it is there. About 530 MB are fetched once, 600 MB stay.
#
#   tools/install_libtorch.sh [--check]     --check: print the folder if it is there, else fail
# HORON_CACHE (default ~/.cache/horon) is where it goes.
set -euo pipefail
version=2.15.0
folder=${HORON_CACHE:-$HOME/.cache/horon}/libtorch-$version
if [ -f "$folder/complete" ]; then echo "$folder"; exit 0; fi
[ "${1:-}" = --check ] && exit 1
python=/usr/bin/python3
"$python" -m pip --version >/dev/null 2>&1 || python=python3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/requirements.txt" <<'LIST'
torch==2.15.0 --hash=sha256:48c2d861134c0b5697c7602cb5ffa68f62a2989fdcd1717e593356f67996ca1e
nvidia-cuda-runtime==13.2.86 --hash=sha256:3498247680dfddce31bad102af7e3e26fc795342a3cac64722bb0fa95e7f60f0
nvidia-cuda-cupti==13.2.86 --hash=sha256:8fa29f15dd8336181f961764d9d95236fc6b931dd0c8fcf8cd70aab0c310b586
LIST
platforms=()
for glibc in $(seq 17 28); do platforms+=(--platform "manylinux_2_${glibc}_x86_64"); done
echo "fetching LibTorch $version (530 MB)" >&2
if ! "$python" -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --python-version 311 \
  "${platforms[@]}" --platform manylinux2014_x86_64 --only-binary=:all: -d "$work" -r "$work/requirements.txt" >"$work/log" 2>&1; then
  tail -n 5 "$work/log" >&2
  echo "install_libtorch.sh: pip could not fetch LibTorch $version" >&2
  exit 1
fi
mkdir -p "$folder.new/lib"
"$python" - "$work" "$folder.new" <<'PYTHON'
import glob, os, shutil, sys, zipfile
work, to = sys.argv[1:]
wanted = {"libtorch_cpu.so", "libc10.so", "libgomp.so.1", "libcudart.so.13", "libcupti.so.13"}
for wheel in glob.glob(os.path.join(work, "*.whl")):
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            target = None
            if name.startswith("torch/include/") and not name.endswith("/"):
                target = os.path.join(to, name.removeprefix("torch/"))
            elif os.path.basename(name) in wanted:
                target = os.path.join(to, "lib", os.path.basename(name))
            if target:
                os.makedirs(os.path.dirname(target), exist_ok=True)
                with archive.open(name) as source, open(target, "wb") as out:
                    shutil.copyfileobj(source, out)
PYTHON
touch "$folder.new/complete"
rm -rf "$folder"
mv "$folder.new" "$folder"
echo "$folder"
