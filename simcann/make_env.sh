#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Make an environment in which the real torch_npu can be imported: it borrows every other package from an
# environment that already has torch, so torch is not downloaded twice and that environment never sees torch_npu.
#
#   simcann/make_env.sh [MAIN_VENV [TARGET]]      defaults: .venv and .venv-npu beside the simcann folder
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
main=${1:-$root/.venv}
target=${2:-$root/.venv-npu}
torch_npu_version=2.13.0

if [ ! -x "$main/bin/python" ]; then
    echo "make_env.sh: no Python environment at $main; pass the one that has torch as the first argument" >&2
    exit 1
fi
site='import sysconfig; print(sysconfig.get_path("purelib"))'
borrowed=$("$main/bin/python" -c "$site")

"$main/bin/python" -m venv "$target"
# protobuf: the TorchAir that the wheel brings along imports it, but does not ask for it.
"$target/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile \
    "torch_npu==$torch_npu_version" "protobuf>=4"
own=$("$target/bin/python" -c "$site")
printf '%s\n' "$borrowed" "$root/src" "$root/simdevice/python" "$root/simcann/python" > "$own/simcann.pth"
echo "$target is ready; build the libraries with: cmake -S simcann -B simcann/build && cmake --build simcann/build"
