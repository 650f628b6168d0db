# SPDX-License-Identifier: Apache-2.0
# The simulated device as a static library of the project that includes this.
add_library(simdevice STATIC
  ${CMAKE_CURRENT_LIST_DIR}/asked_failures.cpp
  ${CMAKE_CURRENT_LIST_DIR}/device.cpp
  ${CMAKE_CURRENT_LIST_DIR}/engine/capture.cpp
  ${CMAKE_CURRENT_LIST_DIR}/engine/completion.cpp
  ${CMAKE_CURRENT_LIST_DIR}/engine/graph.cpp
  ${CMAKE_CURRENT_LIST_DIR}/engine/lane_threads.cpp
  ${CMAKE_CURRENT_LIST_DIR}/engine/schedule.cpp
  ${CMAKE_CURRENT_LIST_DIR}/engine/stream.cpp
  ${CMAKE_CURRENT_LIST_DIR}/engine/value.cpp
  ${CMAKE_CURRENT_LIST_DIR}/engine/workers.cpp
  ${CMAKE_CURRENT_LIST_DIR}/fork.cpp
  ${CMAKE_CURRENT_LIST_DIR}/memory/device_memory.cpp
  ${CMAKE_CURRENT_LIST_DIR}/memory/extents.cpp
  ${CMAKE_CURRENT_LIST_DIR}/memory/host_memory.cpp
  ${CMAKE_CURRENT_LIST_DIR}/settings.cpp
  ${CMAKE_CURRENT_LIST_DIR}/trace.cpp)
# Most of a file's compilation goes to the headers it includes: few files include them once each.
set_target_properties(simdevice PROPERTIES UNITY_BUILD ON)
# A test links it alone.
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/settings.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
target_include_directories(simdevice PUBLIC ${CMAKE_CURRENT_LIST_DIR}/..)

# What libraries of collectives need of it, and of torch's headers the types of numbers: the project says where they are.
add_library(simcollectives STATIC EXCLUDE_FROM_ALL
  ${CMAKE_CURRENT_LIST_DIR}/collectives/communicator.cpp
  ${CMAKE_CURRENT_LIST_DIR}/collectives/mailboxes.cpp
  ${CMAKE_CURRENT_LIST_DIR}/collectives/numbers.cpp)
set_target_properties(simcollectives PROPERTIES UNITY_BUILD ON)
target_compile_options(simcollectives PRIVATE -Wall -Wextra -Wpedantic -Werror)
target_include_directories(simcollectives PUBLIC ${CMAKE_CURRENT_LIST_DIR}/..)
