#include "table.h"

#include <unordered_map>

namespace airgraph {

Maker find_own_kernel(const std::string& name, const std::string& overload) {
  static const auto table = [] {
    std::unordered_map<std::string, Maker> made;
    for (auto rows : {own_products(), own_grouped_products(), own_int_products(), own_attention(), own_rows(),
                      own_row_programs(), own_gathers(), own_activations(), own_norms()}) {
      for (const auto& row : rows) {
        made.emplace(std::string(row.name) + "." + row.overload, row.make);
      }
    }
    return made;
  }();
  const auto found = table.find(name + "." + overload);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace airgraph
