#!/usr/bin/env bash
# Builds the engine with AddressSanitizer and UndefinedBehaviorSanitizer, then with ThreadSanitizer, and runs sanitized_program.py on each.
# torch and Python themselves are not instrumented; reports outside the engine are suppressed by name.
set -euo pipefail
cd "$(dirname "$0")/../.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

build() { # name, sanitizer, further flags
  # Loading the library at the end fails: only a process that has the sanitizer preloaded can. The file is what counts.
  python - "$work/$@" >"$work/build.log" 2>&1 <<'PY' || true
import sys
from pathlib import Path
from torch.utils import cpp_extension
sys.path.insert(0, "src/airgraph/runtime/engine")
import build_flags
folder, sanitizer, further = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
folder.mkdir(parents=True)
flags = [f for f in build_flags.compile_args() if f not in ("-O2", "-g0")]  # not strict: instrumentation adds warnings of its own
cpp_extension.load(
    name="_engine",
    sources=[str(unit) for unit in build_flags.units(Path.cwd(), folder / "units")],
    extra_cflags=["-O1", "-g1", "-fno-omit-frame-pointer", f"-fsanitize={sanitizer}", *further, *flags],
    extra_ldflags=[f"-fsanitize={sanitizer}"],
    build_directory=str(folder),
)
PY
  test -f "$work/$1/_engine.so" || { cat "$work/build.log"; exit 1; }
  mkdir -p "$work/$1/package"
  cp -r src/airgraph "$work/$1/package/"
  rm -f "$work/$1/package/airgraph/"_engine*.so
  cp "$work/$1/_engine.so" "$work/$1/package/airgraph/_engine.so"
}

run() { # name, runtime library, what to leave out
  # All of it as this processor has it, then our kernels again as others have them.
  once "$1" "$2" "${3:-}"
  for limit in AIRGRAPH_CPU_DOTS=0 ATEN_CPU_CAPABILITY=avx2 ATEN_CPU_CAPABILITY=default; do
    once "$1" "$2" "kernels ${3:-}" "$limit"
  done
  grep -q "passed by scalar kernels" "$work/$1.log"
}

once() { # name, runtime library, what to run, variables
  env "${@:4}" OMP_NUM_THREADS=1 PYTHONPATH="$work/$1/package" \
    LD_PRELOAD="$(g++ -print-file-name="$2") $(g++ -print-file-name=libstdc++.so.6)" \
    python tests/engine/sanitized_program.py $3 2>&1 | tee "$work/once.log"
  cat "$work/once.log" >>"$work/$1.log"
  grep -q "sanitized program passed" "$work/once.log"
}

# Classes of torch's are known without what `vptr` asks of them.
build address address,undefined -fno-sanitize=vptr -fno-sanitize-recover=undefined
export ASAN_OPTIONS=detect_leaks=0:halt_on_error=1:alloc_dealloc_mismatch=0
run address libasan.so

build thread thread
printf 'called_from_lib:libtorch_cpu.so\ncalled_from_lib:libtorch_python.so\ncalled_from_lib:libgomp\n' > "$work/tsan.supp"
export TSAN_OPTIONS="suppressions=$work/tsan.supp:halt_on_error=1:report_signal_unsafe=0:ignore_noninstrumented_modules=1"
run thread libtsan.so without-openmp

echo "sanitizers: 2 passed, 0 failed"
