# SPDX-License-Identifier: Apache-2.0
#
# weir_vendor(<variable> <package> <file>...)
#
# Fetches the npm packages of web/package.json into the build folder, in the versions and with the
# checksums of web/package-lock.json, and sets the variable to these files of one of them. Nothing
# of a package is run.
include_guard(GLOBAL)

function(weir_vendor variable package)
  find_program(NPM npm REQUIRED)
  set(source ${PROJECT_SOURCE_DIR}/web)
  set(folder ${PROJECT_BINARY_DIR}/web)
  list(TRANSFORM ARGN PREPEND ${folder}/node_modules/${package}/ OUTPUT_VARIABLE files)
  add_custom_command(OUTPUT ${files}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${folder}
    COMMAND ${CMAKE_COMMAND} -E copy ${source}/package.json ${source}/package-lock.json ${folder}
    COMMAND ${NPM} ci --prefix ${folder} --ignore-scripts --no-audit --no-fund --loglevel=error
    COMMAND ${CMAKE_COMMAND} -E touch ${files}
    DEPENDS ${source}/package.json ${source}/package-lock.json
    COMMENT "Fetch ${package}" VERBATIM)
  set(${variable} ${files} PARENT_SCOPE)
endfunction()
