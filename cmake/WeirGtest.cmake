# SPDX-License-Identifier: Apache-2.0
#
# weir_gtest(<program> <prefix> <property> <value>...)
#
# Registers a GoogleTest program with ctest: each suite is a test, <prefix>.<suite>, with these
# properties, because a process for each of its cases would take longer to start than to run. The
# result of each case is in suites/<prefix>.<suite>.xml of the build; ./dev test counts those.
include_guard(GLOBAL)
set(WEIR_SUITES_SCRIPT ${CMAKE_CURRENT_LIST_DIR}/suites.cmake)

function(weir_gtest program prefix)
  set(file ${CMAKE_CURRENT_BINARY_DIR}/${program}_suites.cmake)
  list(JOIN ARGN " " properties)
  file(WRITE ${file}.in "set(program $<TARGET_FILE:${program}>)
set(prefix ${prefix})
set(folder ${PROJECT_BINARY_DIR}/suites)
set(properties ${properties})
include(${WEIR_SUITES_SCRIPT})
")
  file(GENERATE OUTPUT ${file} INPUT ${file}.in)
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${file})
endfunction()
