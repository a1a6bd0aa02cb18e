# SPDX-License-Identifier: Apache-2.0
#
# weir_embed(<target> <source> <pattern>... [VENDORED <file>...])
#
# Compiles the files that the patterns name, and those that are fetched, into the target, each as
# one literal. weir/control/embedded.h is how they are found again, by their file names.
include_guard(GLOBAL)
set(WEIR_EMBED_DIR ${CMAKE_CURRENT_LIST_DIR})

function(weir_embed target source)
  cmake_parse_arguments(PARSE_ARGV 2 E "" "" "VENDORED")
  file(GLOB files CONFIGURE_DEPENDS ${E_UNPARSED_ARGUMENTS})
  list(APPEND files ${E_VENDORED}) # which the build makes
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${source})
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} "-DFILES=${files}" -DOUTPUT=${output} -P ${WEIR_EMBED_DIR}/embed.cmake
    DEPENDS ${files} ${WEIR_EMBED_DIR}/embed.cmake COMMENT "Embed files" VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()
