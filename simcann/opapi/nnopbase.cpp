// libnnopbase: torch_npu loads it to free executors that it prepared but will not launch.
#include "executor.h"

extern "C" simcann::Status aclDestroyAclOpExecutor(aclOpExecutor* executor) {
  delete executor;
  return 0;
}
