#include "table.h"

#include <unordered_map>

namespace airgraph {
namespace {

using Table = std::unordered_map<std::string, Maker>;

const Table& table() {
  static const Table built = [] {
    Table made;
    for (auto rows : {pointwise_kernels(), comparison_kernels(), reduction_kernels(), matmul_kernels(),
                      indexing_kernels(), fill_kernels(), nn_kernels(), block_copy_kernels()}) {
      for (const auto& row : rows) {
        made.emplace(std::string(row.name) + "." + row.overload, row.make);
      }
    }
    return made;
  }();
  return built;
}

}  // namespace

Maker find_kernel(const std::string& name, const std::string& overload) {
  const auto found = table().find(name + "." + overload);
  return found == table().end() ? nullptr : found->second;
}

size_t kernel_count() { return table().size(); }

}  // namespace airgraph
