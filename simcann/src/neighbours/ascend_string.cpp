// SPDX-License-Identifier: Apache-2.0
// libgraph: the string class that TorchAir's native module makes while it is being loaded.
#define FUNC_VISIBILITY
#include <graph/ascend_string.h>

#include <cstring>

#define SIMCANN_VISIBLE __attribute__((visibility("default")))

namespace ge {

SIMCANN_VISIBLE AscendString::AscendString(const char_t* const name) {
  if (name != nullptr) name_ = std::make_shared<std::string>(name);
}

SIMCANN_VISIBLE const char_t* AscendString::GetString() const { return name_ ? name_->c_str() : ""; }

SIMCANN_VISIBLE bool AscendString::operator<(const AscendString& d) const {
  return std::strcmp(GetString(), d.GetString()) < 0;
}

SIMCANN_VISIBLE bool AscendString::operator==(const AscendString& d) const {
  return std::strcmp(GetString(), d.GetString()) == 0;
}

}  // namespace ge
