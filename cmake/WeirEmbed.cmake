# SPDX-License-Identifier: Apache-2.0
#
# weir_embed(<module> <source> <pattern>... [VENDORED <file>...])
#
# Compiles the files that match the patterns, and the vendored ones, into the module, each as one
# literal. embedded_files() of the module returns them (weir/base/embedded_file.h).
include_guard(GLOBAL)

function(weir_embed module source)
  cmake_parse_arguments(PARSE_ARGV 2 E "" "" "VENDORED")
  file(GLOB files CONFIGURE_DEPENDS ${E_UNPARSED_ARGUMENTS})
  list(APPEND files ${E_VENDORED}) # which the build creates
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${source})
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DMODULE=${module} "-DFILES=${files}" -DOUTPUT=${output}
            -P ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/embed.cmake
    DEPENDS ${files} ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/embed.cmake COMMENT "Embed files" VERBATIM)
  target_sources(weir_${module} PRIVATE ${output})
endfunction()
