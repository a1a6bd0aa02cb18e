# SPDX-License-Identifier: Apache-2.0
#
# weir_proto(<target> <file>...)
#
# Compiles the C++ that protoc and its gRPC plugin generate from the .proto files of this folder
# into the target; its sources include "weir/<module>/<file>.pb.h" and ".grpc.pb.h". Generated code
# is compiled without warnings and sanitizers, which also halves its build time. Only the thread
# sanitizer is used: it has to see every atomic of gRPC's headers to know their order.
include_guard(GLOBAL)
find_program(WEIR_PROTOC protoc REQUIRED)
find_program(WEIR_GRPC_PLUGIN grpc_cpp_plugin REQUIRED)
find_library(WEIR_GRPC grpc++ REQUIRED) # modules link it by its name: users need no package
find_library(WEIR_PROTOBUF protobuf REQUIRED)
add_custom_target(protos) # what a tool that parses the sources needs first

set(WEIR_PROTO_OPTIONS -w -g0 $<IF:$<CONFIG:Debug>,-O0,-O1>)
if(NOT WEIR_SANITIZE STREQUAL "thread")
  list(APPEND WEIR_PROTO_OPTIONS -fno-sanitize=all)
endif()

function(weir_proto target)
  set(root ${PROJECT_BINARY_DIR}/proto)
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${PROJECT_SOURCE_DIR}
             OUTPUT_VARIABLE folder)
  file(MAKE_DIRECTORY ${root})
  set(all)
  set(text)
  foreach(file IN LISTS ARGN)
    cmake_path(REMOVE_EXTENSION file OUTPUT_VARIABLE stem)
    set(made ${root}/${folder}/${stem})
    add_custom_command(OUTPUT ${made}.pb.cc ${made}.pb.h ${made}.grpc.pb.cc ${made}.grpc.pb.h
      COMMAND ${WEIR_PROTOC} --proto_path=${PROJECT_SOURCE_DIR} --cpp_out=${root}
              --grpc_out=${root} --plugin=protoc-gen-grpc=${WEIR_GRPC_PLUGIN} ${folder}/${file}
      WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
      DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${file} COMMENT "Protocol ${file}" VERBATIM)
    set(sources ${made}.pb.cc ${made}.grpc.pb.cc)
    set_source_files_properties(${sources} PROPERTIES
      COMPILE_OPTIONS "${WEIR_PROTO_OPTIONS}" SKIP_LINTING ON)
    list(APPEND all ${sources})
    # Names that protoc defines in each file.
    foreach(name schemas file_default_instances)
      string(APPEND text "#undef ${name}\n#define ${name} ${name}_of_${stem}\n")
    endforeach()
    foreach(source IN LISTS sources)
      string(APPEND text "#include \"${source}\"\n")
    endforeach()
    add_custom_target(proto_${stem} DEPENDS ${made}.pb.h)
    add_dependencies(protos proto_${stem})
  endforeach()
  # Compiled together, in half of the time; fuzzers take one of them alone.
  set(together ${root}/${target}.pb.cc)
  file(CONFIGURE OUTPUT ${together} CONTENT "${text}" @ONLY)
  set_source_files_properties(${together} PROPERTIES
    COMPILE_OPTIONS "${WEIR_PROTO_OPTIONS}" SKIP_LINTING ON OBJECT_DEPENDS "${all}")
  target_sources(${target} PRIVATE ${together})
  target_include_directories(${target} SYSTEM PRIVATE ${root})
endfunction()
