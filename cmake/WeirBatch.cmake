# SPDX-License-Identifier: Apache-2.0
#
# weir_batch(<variable> <kind> <stem> <source>...)
#
# Sets the variable to the files to compile instead of the sources: with WEIR_BATCH, several sources
# that do not disturb each other are compiled as one file (batches.py), because most of a compiler's
# work is the headers that they share. Kind is PRODUCT or TEST. Sources with options of their own
# are compiled alone; set those before. The dev preset compiles the product's sources one by one, so
# that a missing include is found.
include_guard(GLOBAL)
set(WEIR_BATCH "" CACHE STRING "Sources to compile several at a time: empty, tests or all")
set_property(CACHE WEIR_BATCH PROPERTY STRINGS "" tests all)
set(WEIR_BATCH_DIR ${CMAKE_CURRENT_LIST_DIR})
if(WEIR_BATCH)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${WEIR_BATCH_DIR}/batches.py)
endif()
# GCC takes what a batch includes for headers, where a type of an anonymous namespace is a mistake;
# and clang does not look there for constants that nobody uses, so GCC has to.
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
