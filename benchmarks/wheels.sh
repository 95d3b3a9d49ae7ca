#!/usr/bin/env bash
# benchmarks/wheels.sh FOLDER [OPTION...]: eqsat and all that it needs as one folder of wheels, for machines without a
# network, and their sizes. CuPy, which depends on the GPU, is not among them.
#
#     benchmarks/wheels.sh wheels
#     benchmarks/wheels.sh wheels --python-version 3.12 --platform manylinux_2_28_x86_64
#     pip install --no-index --find-links wheels eqsat        # on the other machine
#
# Options are those of `pip download`. Without any, the wheels are for this machine, and are tried in a fresh environment.
# Debug information, most of egglog's wheel, is stripped where this machine's strip knows the other's instruction set.
set -euo pipefail
target=$(realpath -m "${1:?usage: benchmarks/wheels.sh FOLDER [OPTION...]}")
shift
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore

python3 -m venv "$scratch/build"
"$scratch/build/bin/pip" install -q wheel
"$scratch/build/bin/pip" wheel -q --no-deps --wheel-dir "$target" .
"$scratch/build/bin/pip" download -q --only-binary=:all: --dest "$target" "$@" "$target"/eqsat-*.whl

# with_debug_information FOLDER: its libraries that hold some. Others are left alone: strip breaks some that were patched.
with_debug_information() {
  find "$1" -type f -name '*.so*' | while read -r library; do
    if readelf -SW "$library" 2>/dev/null | grep -q '\.debug_info'; then echo "$library"; fi
  done
}

# stripped WHEEL: packs it anew, with the digests of its libraries without debug information.
stripped() {
  local libraries
  rm -rf "$scratch/wheel"
  "$scratch/build/bin/wheel" unpack --dest "$scratch/wheel" "$1" >/dev/null
  mapfile -t libraries < <(with_debug_information "$scratch/wheel")
  if [ ${#libraries[@]} -eq 0 ]; then return; fi
  if ! strip --strip-unneeded "${libraries[@]}"; then return; fi
  rm "$1"
  "$scratch/build/bin/wheel" pack --dest-dir "$target" "$scratch/wheel"/* >/dev/null
}

for wheel in "$target"/*linux*.whl; do stripped "$wheel"; done

du -b "$target"/*.whl | sort -rn | awk '{ n = split($2, path, "/"); total += $1; printf "%8.2f MB  %s\n", $1 / 1e6, path[n] }
  END { printf "%8.2f MB  in %d wheels\n", total / 1e6, NR }'

if [ $# -eq 0 ]; then
  python3 -m venv "$scratch/venv"
  "$scratch/venv/bin/pip" install -q --no-index --find-links "$target" eqsat
  cd "$scratch"
  "$scratch/venv/bin/eqsat" version
fi
