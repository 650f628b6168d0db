// What a thread has of its own that decides how kernels compute, beside the state that ReplayGuard sets.
#pragma once

#include <ATen/Parallel.h>

#include <cstdint>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

// Torch's own OpenMP and MKL, where torch was built with them. The engine is not compiled with OpenMP, which would
// bring another one, with threads of its own.
extern "C" {
__attribute__((weak)) void omp_set_num_threads(int);
__attribute__((weak)) int omp_get_thread_num();
__attribute__((weak)) void GOMP_parallel(void (*region)(void*), void* data, unsigned threads, unsigned flags);
__attribute__((weak)) int MKL_Set_Num_Threads_Local(int);
}

namespace airgraph {

// How a thread rounds, and whether it takes denormal numbers for zero.
inline uint32_t float_control() {
#if defined(__x86_64__)
  return _mm_getcsr();
#elif defined(__aarch64__)
  uint64_t value = 0;
  asm volatile("mrs %0, fpcr" : "=r"(value));
  return static_cast<uint32_t>(value);
#else
  return 0;
#endif
}

inline void set_float_control(uint32_t value) {
#if defined(__x86_64__)
  constexpr uint32_t kFlags = 0x3F;  // what has happened, not how to compute
  if (((_mm_getcsr() ^ value) & ~kFlags) != 0) {
    _mm_setcsr(value & ~kFlags);
  }
#elif defined(__aarch64__)
  asm volatile("msr fpcr, %0" : : "r"(static_cast<uint64_t>(value)));
#else
  (void)value;
#endif
}

// How many threads kernels of this thread use.
inline void set_intra_op_threads(int count) {
  if (omp_set_num_threads != nullptr) {
    omp_set_num_threads(count);
  }
  if (MKL_Set_Num_Threads_Local != nullptr) {
    MKL_Set_Num_Threads_Local(count);
  }
}

// While it lives, kernels of this thread use so many threads.
class IntraOpThreads {
 public:
  explicit IntraOpThreads(int count) : before_(at::get_num_threads()), differs_(count != before_) {
    if (differs_ && omp_set_num_threads != nullptr) {
      omp_set_num_threads(count);
    }
    if (differs_ && MKL_Set_Num_Threads_Local != nullptr) {
      mkl_before_ = MKL_Set_Num_Threads_Local(count);
    }
  }
  ~IntraOpThreads() {
    if (differs_ && omp_set_num_threads != nullptr) {
      omp_set_num_threads(before_);
    }
    if (differs_ && MKL_Set_Num_Threads_Local != nullptr) {
      MKL_Set_Num_Threads_Local(mkl_before_);
    }
  }
  IntraOpThreads(const IntraOpThreads&) = delete;
  IntraOpThreads& operator=(const IntraOpThreads&) = delete;

 private:
  const int before_;
  const bool differs_;
  int mkl_before_ = 0;
};

}  // namespace airgraph
