// Memory of huge pages, for what each replay reads from one end to the other: fewer addresses to translate.
#pragma once

#include <c10/core/Storage.h>

#include <vector>

namespace airgraph {

// Where they lie now. The kernel may give small pages instead, which is no error.
struct HugePages {
  const void* begin;
  size_t nbytes;
};

// Moves the memory of these storages of the CPU, no two of them the same, into one block, in this order. Whatever lies
// over a storage follows. The block lives until the last of them has let go of its part. Throws where there is no
// memory, and then nothing has moved.
HugePages move_into_huge_pages(const std::vector<c10::Storage>& storages);

}  // namespace airgraph
