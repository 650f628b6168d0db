"""Stops threads of other processes, and lets them go when standard input ends.

    python hold_threads.py THREAD...

Prints "held" once they stand still, or "not permitted". Linux alone; there, no other way stops a single thread.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys

# As in linux/ptrace.h.
_SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17


def main(threads: list[int]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.restype = ctypes.c_long
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]

    def trace(request: int, thread: int) -> None:
        if libc.ptrace(request, thread, None, None) != 0:
            number = ctypes.get_errno()
            if number != errno.EPERM:
                raise OSError(number, os.strerror(number), str(thread))
            print("not permitted", flush=True)
            sys.exit(1)

    for thread in threads:
        trace(_SEIZE, thread)
        trace(_INTERRUPT, thread)
        # __WALL: of threads, too.
        os.waitpid(thread, 0x40000000)
    print("held", flush=True)
    sys.stdin.read()
    for thread in threads:
        trace(_DETACH, thread)


if __name__ == "__main__":
    main([int(thread) for thread in sys.argv[1:]])
