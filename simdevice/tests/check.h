// SPDX-License-Identifier: Apache-2.0
// A test program: each TEST is run in turn; CHECK says what did not hold, and the program then ends with status 1.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace check {

struct Test {
  const char* name;
  std::function<void()> body;
};

inline std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

inline bool add(const char* name, std::function<void()> body) {
  tests().push_back({name, std::move(body)});
  return true;
}

[[noreturn]] inline void fail(const char* file, int line, const std::string& what) {
  std::fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what.c_str());
  std::exit(1);
}

}  // namespace check

#define TEST(name)                                                                  \
  static void name();                                                               \
  [[maybe_unused]] static const bool name##_added = check::add(#name, name);        \
  static void name()

#define CHECK(condition)                                          \
  do {                                                            \
    if (!(condition)) check::fail(__FILE__, __LINE__, #condition); \
  } while (false)

#define CHECK_CONTAINS(text, part)                                                                      \
  do {                                                                                                  \
    const std::string text_ = (text);                                                                   \
    if (text_.find(part) == std::string::npos) check::fail(__FILE__, __LINE__, #part " in: " + text_); \
  } while (false)

int main() {
  for (const auto& test : check::tests()) {
    std::printf("%s\n", test.name);
    std::fflush(stdout);
    test.body();
  }
  return 0;
}
