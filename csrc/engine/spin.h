// Waiting for a moment without giving up the processor.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace airgraph {

inline void pause_spinning() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace airgraph
