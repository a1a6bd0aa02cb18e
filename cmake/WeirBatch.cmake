# SPDX-License-Identifier: Apache-2.0
#
# weir_batch(<variable> <kind> <stem> <source>...)
#
# Sets the variable to the files to compile instead of the sources: with WEIR_BATCH, several sources
# that do not conflict are compiled as one file (batches.py), because most of a compiler's work is
# shared headers. Kind is PRODUCT or TEST. Sources with their own options are compiled alone; set
# the options before.
#
# weir_alone(<target> <source>...)
#
# A batch has the headers of all of its sources, so one of them may lack an include unnoticed. The
# target `alone` parses the sources of the product one by one and produces nothing. Not in the fuzz
# preset, whose commands clang-tidy reads.
include_guard(GLOBAL)
add_custom_target(alone)
set(WEIR_BATCH "" CACHE STRING "Sources to compile several at a time: empty, tests or all")
set_property(CACHE WEIR_BATCH PROPERTY STRINGS "" tests all)
set(WEIR_BATCH_DIR ${CMAKE_CURRENT_LIST_DIR})
if(WEIR_BATCH)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${WEIR_BATCH_DIR}/batches.py)
endif()
# GCC treats the sources of a batch as headers, where it warns about types of an anonymous
# namespace; and clang does not report unused constants there, so GCC has to.
if(WEIR_BATCH AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(flags weir_test_flags)
  if(WEIR_BATCH STREQUAL "all")
    set(flags weir_flags)
  endif()
  target_compile_options(${flags} INTERFACE -Wno-subobject-linkage -Wunused-const-variable)
endif()

function(weir_batch variable kind stem)
  if(NOT WEIR_BATCH STREQUAL "all" AND NOT (WEIR_BATCH STREQUAL "tests" AND kind STREQUAL "TEST"))
    set(${variable} ${ARGN} PARENT_SCOPE)
    return()
  endif()
  set(together)
  set(alone)
  foreach(source IN LISTS ARGN)
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    if(options)
      list(APPEND alone ${source})
    else()
      cmake_path(ABSOLUTE_PATH source NORMALIZE)
      list(APPEND together ${source})
    endif()
  endforeach()
  execute_process(
    COMMAND ${Python3_EXECUTABLE} -B ${WEIR_BATCH_DIR}/batches.py ${PROJECT_SOURCE_DIR}
            ${CMAKE_CURRENT_BINARY_DIR} ${stem} ${together}
    OUTPUT_VARIABLE files OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\n" ";" files "${files}")
  set(${variable} ${files} ${alone} PARENT_SCOPE)
endfunction()

function(weir_alone target)
  if(NOT WEIR_BATCH STREQUAL "all" OR WEIR_BUILD_FUZZERS)
    return() # without batches the build itself compiles them one by one
  endif()
  add_library(${target}_alone OBJECT EXCLUDE_FROM_ALL ${ARGN})
  target_link_libraries(${target}_alone PRIVATE ${target})
  foreach(kind INCLUDE_DIRECTORIES COMPILE_DEFINITIONS)
    set_property(TARGET ${target}_alone PROPERTY ${kind} $<TARGET_PROPERTY:${target},${kind}>)
  endforeach()
  target_compile_options(${target}_alone PRIVATE -fsyntax-only -w)
  add_dependencies(alone ${target}_alone)
endfunction()
