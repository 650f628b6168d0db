# SPDX-License-Identifier: Apache-2.0
# The simulated device's own tests: no torch in the process, so they run under ThreadSanitizer as well.
foreach(name asked_failures capture graph memory schedule stream value)
  add_executable(test_${name} ${CMAKE_CURRENT_LIST_DIR}/test_${name}.cpp ${CMAKE_CURRENT_LIST_DIR}/runtime.cpp)
  target_link_libraries(test_${name} PRIVATE simdevice)
  add_test(NAME ${name} COMMAND test_${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 120)
endforeach()
