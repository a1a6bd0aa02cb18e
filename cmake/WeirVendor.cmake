# SPDX-License-Identifier: Apache-2.0
#
# weir_vendor(<variable> <package> <file>...)
#
# Downloads a package of web/package-lock.json into the build folder, with the version and checksum
# given there, and sets the variable to these files of it. This happens at configure time, so that a
# missing network is reported at once, and not minutes into a build.
include_guard(GLOBAL)
set(WEIR_FETCH ${CMAKE_CURRENT_LIST_DIR}/fetch.py)

function(weir_vendor variable package)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  set(lock ${PROJECT_SOURCE_DIR}/web/package-lock.json)
  set(folder ${PROJECT_BINARY_DIR}/web)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${lock} ${WEIR_FETCH})
  execute_process(COMMAND ${Python3_EXECUTABLE} -B ${WEIR_FETCH} ${lock} ${folder} ${package}
                          ${ARGN} RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "cannot download ${package}; see the message above")
  endif()
  list(TRANSFORM ARGN PREPEND ${folder}/${package}/ OUTPUT_VARIABLE files)
  set(${variable} ${files} PARENT_SCOPE)
endfunction()
