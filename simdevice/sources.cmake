# SPDX-License-Identifier: Apache-2.0
# The simulated device as a static library of the project that includes this.
add_library(simdevice STATIC
  ${CMAKE_CURRENT_LIST_DIR}/device.cpp
  ${CMAKE_CURRENT_LIST_DIR}/engine/capture.cpp
  ${CMAKE_CURRENT_LIST_DIR}/engine/completion.cpp
  ${CMAKE_CURRENT_LIST_DIR}/engine/graph.cpp
  ${CMAKE_CURRENT_LIST_DIR}/engine/lane_threads.cpp
  ${CMAKE_CURRENT_LIST_DIR}/engine/schedule.cpp
  ${CMAKE_CURRENT_LIST_DIR}/engine/stream.cpp
  ${CMAKE_CURRENT_LIST_DIR}/engine/value.cpp
  ${CMAKE_CURRENT_LIST_DIR}/engine/workers.cpp
  ${CMAKE_CURRENT_LIST_DIR}/memory/device_memory.cpp
  ${CMAKE_CURRENT_LIST_DIR}/memory/extents.cpp
  ${CMAKE_CURRENT_LIST_DIR}/memory/host_memory.cpp
  ${CMAKE_CURRENT_LIST_DIR}/settings.cpp
  ${CMAKE_CURRENT_LIST_DIR}/trace.cpp)
target_include_directories(simdevice PUBLIC ${CMAKE_CURRENT_LIST_DIR}/..)
