"""Print the peak resident memory, in bytes, of a process that loads SmolLM2 and decodes with it.

    decode_memory.py eager|airgraph [--tokens 64] [--json]

The number is VmHWM of the whole process, loading included. Loading unpacks 4-bit weights and has a peak of its
own, which could hide what decoding needs: --json also gives `decode_nbytes`, the peak of prefill, capture and
decoding alone (Linux lets a process start its VmHWM again), and `loaded_nbytes`, what was resident before them.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
from pathlib import Path

import smollm2
import torch


def status_nbytes(field: str) -> int:
    """A field of /proc/self/status that Linux gives in kB, as bytes."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}: peak memory can be measured on Linux only")


def restart_peak() -> None:
    """Give freed memory back to the system and let VmHWM start from what is resident now."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=("eager", "airgraph"))
    parser.add_argument("--tokens", type=int, default=64, help="tokens to decode")
    parser.add_argument("--json", action="store_true", help="print all three numbers and the tokens")
    options = parser.parse_args()

    model, prompt = smollm2.load(), smollm2.prompt_ids()
    loading_nbytes = status_nbytes("VmHWM")
    restart_peak()
    loaded_nbytes = status_nbytes("VmRSS")
    with torch.inference_mode():
        sequence = smollm2.decoder(model, prompt, None if options.mode == "eager" else options.mode)
        sequence.decode(options.tokens)
    decode_nbytes = status_nbytes("VmHWM")
    peak_nbytes = max(loading_nbytes, decode_nbytes)
    if options.json:
        sizes = {"peak_nbytes": peak_nbytes, "decode_nbytes": decode_nbytes, "loaded_nbytes": loaded_nbytes}
        print(json.dumps({**sizes, "tokens": sequence.tokens}))
    else:
        print(peak_nbytes)


if __name__ == "__main__":
    main()
