#!/usr/bin/env bash
# Installs the Debian packages that Horon builds and runs with. Quiet, and does nothing when all are there.
#
#   tools/install_deps.sh            install what is missing (uses sudo only when not root)
#   tools/install_deps.sh --tests    also what the tests need: real peers to start, kill and lie to
#   tools/install_deps.sh --check    list what is missing, change nothing; exit 1 if anything is
set -euo pipefail

packages=(
  g++ cmake ninja-build ccache pkg-config git python3   # build
  libfmt-dev libspdlog-dev libcli11-dev nlohmann-json3-dev libssl-dev
  libjpeg62-turbo-dev libpng-dev zlib1g-dev libcurl4-openssl-dev   # pictures, archives, http
  python3-pip                                           # fetches LibTorch (tools/install_libtorch.sh)
  libgloo-dev                                           # collectives between hosts
  libopenmpi-dev openmpi-bin libmpich-dev mpich         # both MPIs: one plug-in each
  dpkg-dev file                                         # make package
)
test_packages=(
  libgtest-dev clang-format clang-tidy clang libclang-rt-dev   # checks, fuzzers
  openssh-client openssh-server iproute2 iptables              # hosts made of namespaces
  slurm-wlm munge
  python3-numpy python3-pil                                    # other programs that read what we write
  python3-venv                                                 # make bench-peers
)

usage() { sed -n '2,6p' "$0" | sed 's/^# \{0,1\}//'; }

check=0
for argument in "$@"; do
  case "$argument" in
    --tests) packages+=("${test_packages[@]}") ;;
    --check) check=1 ;;
    -h | --help) usage; exit 0 ;;
    *) echo "install_deps.sh: unknown argument '$argument'" >&2; usage >&2; exit 2 ;;
  esac
done
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done

if [ "$check" -eq 1 ]; then
  [ ${#missing[@]} -eq 0 ] && { echo "nothing is missing"; exit 0; }
  printf '%s\n' "${missing[@]}"
  exit 1
fi

[ ${#missing[@]} -eq 0 ] && exit 0
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "install_deps.sh: need root or sudo to install: ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
echo "installing: ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
install() { "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >"$log" 2>&1; }
# The package lists may be old or absent: fetch them once, then install.
if ! { "${as_root[@]}" apt-get update -qq >"$log" 2>&1 && install; }; then
  tail -n 20 "$log" >&2
  echo "install_deps.sh: apt-get could not install the packages above" >&2
  exit 1
fi
