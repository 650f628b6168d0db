// SPDX-License-Identifier: Apache-2.0
// The bounds-checked string functions that TorchAir's native modules use, after C11's Annex K: they write at most
// `capacity` bytes, always end the text, and return a negative number (or an error) if it did not fit.
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstring>

#define SIMCANN_VISIBLE __attribute__((visibility("default")))

extern "C" {

SIMCANN_VISIBLE int vsnprintf_s(char* target, std::size_t capacity, std::size_t count, const char* format,
                                std::va_list arguments) {
  if (target == nullptr || format == nullptr || capacity == 0) return -1;
  const std::size_t room = count < capacity ? count + 1 : capacity;
  const int length = std::vsnprintf(target, room, format, arguments);
  return length >= 0 && static_cast<std::size_t>(length) < room ? length : -1;
}

SIMCANN_VISIBLE int snprintf_s(char* target, std::size_t capacity, std::size_t count, const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf_s(target, capacity, count, format, arguments);
  va_end(arguments);
  return length;
}

SIMCANN_VISIBLE int strcpy_s(char* target, std::size_t capacity, const char* source) {
  if (target == nullptr || capacity == 0) return EINVAL;
  const std::size_t length = source == nullptr ? 0 : std::strlen(source);
  if (source == nullptr || length >= capacity) {
    *target = '\0';
    return source == nullptr ? EINVAL : ERANGE;
  }
  std::memcpy(target, source, length + 1);
  return 0;
}

}  // extern "C"
