# SPDX-License-Identifier: Apache-2.0
#
# Run by ctest when it starts, with the file that weir_gtest() has written: lists the suites.
if(NOT EXISTS ${program})
  add_test(${prefix} ${program}) # which ctest reports as not found
  set_tests_properties(${prefix} PROPERTIES ${properties})
  return()
endif()
set(list ${program}_suites.txt)
if(NOT EXISTS ${list} OR ${program} IS_NEWER_THAN ${list})
  execute_process(COMMAND ${program} --gtest_list_tests OUTPUT_VARIABLE suites
                  COMMAND_ERROR_IS_FATAL ANY)
  # Cases are indented below their suite.
  string(REGEX MATCHALL "(^|\n)[A-Za-z_][A-Za-z0-9_/]*\\." suites "${suites}")
  list(TRANSFORM suites REPLACE "[\n.]" "")
  file(WRITE ${list} "${suites}")
endif()
file(READ ${list} suites)
foreach(suite IN LISTS suites)
  string(REPLACE / _ file ${suite})
  add_test(${prefix}.${suite} ${program} --gtest_filter=${suite}.*
           --gtest_output=xml:${folder}/${prefix}.${file}.xml)
  set_tests_properties(${prefix}.${suite} PROPERTIES ${properties})
endforeach()
