#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Make an environment with the real CUDA build of torch, without NVIDIA's libraries: simcuda takes their place. Every
# other package is borrowed from an environment that already has torch. Downloads about 530 MB once.
#
#   simcuda/make_env.sh [MAIN_VENV [TARGET]]      defaults: .venv and .venv-cuda beside the simcuda folder
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
main=${1:-$root/.venv}
target=${2:-$root/.venv-cuda}
# Three equals signs: with two, pip may take a CPU build of the same version.
torch=torch===2.13.0

if [ ! -x "$main/bin/python" ]; then
    echo "make_env.sh: no Python environment at $main; pass the one that has torch as the first argument" >&2
    exit 1
fi
site='import sysconfig; print(sysconfig.get_path("purelib"))'
borrowed=$("$main/bin/python" -c "$site")

"$main/bin/python" -m venv "$target"
"$target/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile \
    "$torch" "nvidia-cuda-runtime==13.0.*" "nvidia-cuda-crt==13.0.*"
own=$("$target/bin/python" -c "$site")
# NVIDIA's own libcudart must not be found before simcuda's; its headers are what is wanted.
rm -f "$own"/nvidia/cu13/lib/libcudart*
printf '%s\n' "$borrowed" "$root/src" "$root/simdevice/python" "$root/simcuda/python" > "$own/simcuda.pth"
echo "$target is ready; build the libraries with: cmake -S simcuda -B simcuda/build && cmake --build simcuda/build"
