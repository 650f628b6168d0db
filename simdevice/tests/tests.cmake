# SPDX-License-Identifier: Apache-2.0
# The simulated device's own tests: no torch in the process, so they run under ThreadSanitizer as well.
# They run for a tenth of a second and were compiled for a minute, so nothing of them is optimised.
add_library(test_runtime OBJECT ${CMAKE_CURRENT_LIST_DIR}/runtime.cpp)
target_link_libraries(test_runtime PRIVATE simdevice)
target_compile_options(test_runtime PRIVATE -O0 -g1)
foreach(name asked_failures capture graph memory schedule stream value)
  add_executable(test_${name} ${CMAKE_CURRENT_LIST_DIR}/test_${name}.cpp)
  target_link_libraries(test_${name} PRIVATE simdevice test_runtime)
  target_compile_options(test_${name} PRIVATE -O0 -g1)
  add_test(NAME ${name} COMMAND test_${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 120)
endforeach()
