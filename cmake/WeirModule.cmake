# SPDX-License-Identifier: Apache-2.0
#
# weir_module(<folder> LAYER <n> [PURE] [COLD] [SIMULATED] [PARTS <subfolder>...] [DEPS <folder>...]
#             [SYSTEM <target>...] [SHOWN <target>...]
#             [TEST_DEPS <folder>...] [TEST_SYSTEM <target>...])
#
# Declares the folder weir/<folder>: its library, weir_<name> where <name> is the folder with _ for
# each /, and its unit tests, micro benchmarks and fuzzers, found by the endings of their files. The
# architecture is checked in three places:
#   declared   at configure time: a module depends only on lower layers; a PURE one only on PURE
#              modules and on libraries that cannot reach the system        (weir_check_layers)
#   included   at build time: every #include is covered by the declaration, every declaration is
#              used, and a PURE module uses no names of the operating system
#                                                                           (check_includes.cmake)
#   linked     at build time: a PURE archive uses no symbol that reads a clock, starts a thread or
#              calls the system                                             (check_symbols.sh)
# SYSTEM are libraries that sources use, SHOWN those that headers expose to users of the module.
# Libraries that only tests, benchmarks and fuzzers use are declared under TEST_.
# A COLD module handles neither requests nor simulated events: the release build compiles it with
# -Os, which takes less time than -O2, and the programs get smaller by a tenth.
# A SIMULATED module is not PURE, but tests run it in virtual time as they do PURE ones.
# PARTS are subfolders with private files of the module; other modules must not include them.
# A module without sources is declared too, so that the folders show the whole design.

include_guard(GLOBAL)
include(GNUInstallDirs)
include(${CMAKE_CURRENT_LIST_DIR}/WeirBatch.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/WeirGtest.cmake)
set(WEIR_CMAKE_DIR ${CMAKE_CURRENT_LIST_DIR})
add_custom_target(product) # what is installed
add_custom_target(benches)
add_custom_target(fuzzers)

set(WEIR_COLD_OPTIONS $<$<CONFIG:Release>:-Os>)
set(WEIR_TEST_FILES "" CACHE STRING "Unit tests to build, as in a|b for a_test.cc and b_test.cc")

# Libraries that a PURE module may link in addition to PURE modules.
set(WEIR_PURE_LIBRARIES "^(fmt::fmt|absl::.*|tl::expected|Boost::headers)$")

function(weir_module folder)
  cmake_parse_arguments(PARSE_ARGV 1 M "PURE;COLD;SIMULATED" "LAYER"
                        "PARTS;DEPS;SYSTEM;SHOWN;TEST_DEPS;TEST_SYSTEM")
  if(M_UNPARSED_ARGUMENTS OR NOT DEFINED M_LAYER)
    message(FATAL_ERROR
      "weir_module(${folder}): LAYER is required; unknown arguments: '${M_UNPARSED_ARGUMENTS}'")
  endif()
  string(REPLACE / _ name ${folder})
  set(target weir_${name})
  file(GLOB files CONFIGURE_DEPENDS *.h *.cc)
  foreach(part IN LISTS M_PARTS)
    file(GLOB part_files CONFIGURE_DEPENDS ${part}/*.h ${part}/*.cc)
    list(APPEND files ${part_files})
  endforeach()
  set(sources ${files})
  list(FILTER sources EXCLUDE REGEX "(_(test|bench|fuzz)\\.cc|\\.h)$")
  set(headers ${files})
  list(FILTER headers INCLUDE REGEX "\\.h$")
  # Those for sources of the module itself, and for its tests; and weir.h (WeirLibrary.cmake).
  list(FILTER headers EXCLUDE REGEX "_(bench|grpc|nlohmann|for_tests)\\.h$|/fake_[a-z_]+\\.h$")
  list(FILTER headers EXCLUDE REGEX "/embed/(weir|c_[a-z]+)\\.h$")
  list(TRANSFORM M_DEPS PREPEND weir_ OUTPUT_VARIABLE libraries)
  list(TRANSFORM libraries REPLACE / _)
  set(all_deps ${M_DEPS} ${M_TEST_DEPS})
  set(product_system ${M_SYSTEM} ${M_SHOWN})
  set(all_system ${product_system} ${M_TEST_SYSTEM})

  set(visibility PUBLIC)
  if(sources)
    weir_batch(compiled PRODUCT ${name}_batch ${sources})
    add_library(${target} STATIC ${compiled})
    add_dependencies(product ${target})
    target_link_libraries(${target} PUBLIC ${libraries} ${M_SHOWN} PRIVATE ${M_SYSTEM}
                          $<BUILD_INTERFACE:weir_flags>)
    target_compile_features(${target} PUBLIC cxx_std_20)
    if(M_COLD)
      target_compile_options(${target} PRIVATE ${WEIR_COLD_OPTIONS})
    endif()
    # Tests run these for millions of steps.
    if((M_PURE OR M_SIMULATED) AND WEIR_SANITIZE MATCHES "address")
      target_compile_options(${target} PRIVATE $<$<CONFIG:Debug>:-O1>)
    endif()
    weir_alone(${target} ${sources})
  else()
    set(visibility INTERFACE)
    add_library(${target} INTERFACE)
    target_link_libraries(${target} INTERFACE ${libraries} ${M_SHOWN})
    target_compile_features(${target} INTERFACE cxx_std_20)
  endif()
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name}
    WEIR_LAYER ${M_LAYER} WEIR_PURE "${M_PURE}" WEIR_DEPS "${all_deps}"
    WEIR_SYSTEM "${all_system}")
  set_property(GLOBAL APPEND PROPERTY WEIR_MODULES ${folder})
  if(NOT files)
    install(TARGETS ${target} EXPORT weir) # others may depend on it already
    return()
  endif()

  # Sources include their own header first (check_includes.cmake), so it is compiled alone there.
  set(lone_headers)
  foreach(header IN LISTS headers)
    cmake_path(REPLACE_EXTENSION header cc OUTPUT_VARIABLE source)
    if(NOT source IN_LIST sources)
      list(APPEND lone_headers ${header})
    endif()
  endforeach()
  list(REMOVE_ITEM headers ${lone_headers})
  target_sources(${target} ${visibility}
    FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${headers}
    FILE_SET lone TYPE HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${lone_headers})
  set_target_properties(${target} PROPERTIES
    VERIFY_INTERFACE_HEADER_SETS ON INTERFACE_HEADER_SETS_TO_VERIFY lone)
  install(TARGETS ${target} EXPORT weir FILE_SET HEADERS FILE_SET lone)
  if(sources)
    set_property(GLOBAL APPEND PROPERTY WEIR_ARCHIVES ${name})
  endif()

  set(stamp ${CMAKE_CURRENT_BINARY_DIR}/${name}.includes)
  add_custom_command(OUTPUT ${stamp}
    COMMAND ${CMAKE_COMMAND} "-DNAME=${folder}" "-DPURE=${M_PURE}" "-DDEPS=${M_DEPS}"
            "-DTEST_DEPS=${M_TEST_DEPS}" "-DLIBRARIES=${product_system}"
            "-DTEST_LIBRARIES=${M_TEST_SYSTEM}" "-DPARTS=${M_PARTS}"
            "-DFILES=${files}" -P ${WEIR_CMAKE_DIR}/check_includes.cmake
    COMMAND ${CMAKE_COMMAND} -E touch ${stamp}
    DEPENDS ${files} ${WEIR_CMAKE_DIR}/check_includes.cmake
    COMMENT "Includes of weir/${folder}" VERBATIM)
  add_custom_target(includes_${name} ALL DEPENDS ${stamp})
  add_dependencies(${target} includes_${name})
  if(M_PURE AND sources)
    add_custom_command(TARGET ${target} POST_BUILD
      COMMAND ${WEIR_CMAKE_DIR}/check_symbols.sh $<TARGET_FILE:${target}> VERBATIM)
  endif()

  list(TRANSFORM M_TEST_DEPS PREPEND weir_ OUTPUT_VARIABLE test_libraries)
  list(TRANSFORM test_libraries REPLACE / _)
  weir_module_programs(${name} "${files}" "${test_libraries};${M_SYSTEM};${M_TEST_SYSTEM}")
endfunction()

# The programs in the folder of a module.
function(weir_module_programs name files libraries)
  set(tests ${files})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  if(WEIR_TEST_FILES)
    list(FILTER tests INCLUDE REGEX "/(${WEIR_TEST_FILES})_test\\.cc$")
  endif()
  if(WEIR_BUILD_TESTS AND tests)
    weir_batch(compiled TEST ${name}_test_batch ${tests})
    add_executable(${name}_test ${compiled})
    target_link_libraries(${name}_test PRIVATE weir_${name} weir_flags ${libraries}
                          weir_test_flags rapidcheck rapidcheck_gtest GTest::gtest_main)
    # Property tests use the same cases in every run; RC_PARAMS=seed=N selects others.
    weir_gtest(${name}_test ${name} LABELS unit TIMEOUT 300 COST 30 PROCESSORS 4
               ENVIRONMENT RC_PARAMS=seed=1)
  endif()
  set(benches ${files})
  list(FILTER benches INCLUDE REGEX "_bench\\.cc$")
  if(WEIR_BUILD_TESTS AND benches)
    weir_batch(compiled PRODUCT ${name}_bench_batch ${benches})
    add_executable(${name}_bench EXCLUDE_FROM_ALL ${compiled}
                   ${WEIR_CMAKE_DIR}/../bench/allocations.cc)
    target_link_libraries(${name}_bench PRIVATE weir_${name} weir_flags ${libraries}
                          benchmark::benchmark_main)
    add_dependencies(benches ${name}_bench)
  endif()
  if(WEIR_BUILD_FUZZERS)
    set(fuzzers ${files})
    list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.cc$")
    foreach(file IN LISTS fuzzers)
      get_filename_component(fuzzer ${file} NAME_WE)
      # A fuzzer that needs few files of a large module names its sources and
      # libraries: WEIR_PARTS_<it>.
      set(parts ${WEIR_PARTS_${fuzzer}})
      set(linked ${parts})
      list(FILTER parts INCLUDE REGEX "\\.cc$")
      list(FILTER linked EXCLUDE REGEX "\\.cc$")
      if(NOT parts)
        set(linked weir_${name})
      endif()
      add_executable(${fuzzer} ${file} ${parts})
      target_link_libraries(${fuzzer} PRIVATE ${linked} weir_flags -fsanitize=fuzzer)
      add_dependencies(fuzzers ${fuzzer})
    endforeach()
  endif()
endfunction()

# Runs after all folders are added, so they may be added in the order in which a request
# passes them.
function(weir_check_layers)
  get_property(modules GLOBAL PROPERTY WEIR_MODULES)
  foreach(name IN LISTS modules)
    string(REPLACE / _ target weir_${name})
    foreach(property LAYER PURE DEPS SYSTEM)
      get_target_property(${property} ${target} WEIR_${property})
    endforeach()
    set(hidden ${SYSTEM})
    list(FILTER hidden INCLUDE REGEX "^weir(_|::)")
    if(hidden)
      message(SEND_ERROR "weir/${name}: modules belong under DEPS, not SYSTEM: ${hidden}")
    endif()
    set(impure ${SYSTEM})
    list(FILTER impure EXCLUDE REGEX "${WEIR_PURE_LIBRARIES}")
    if(PURE AND impure)
      message(SEND_ERROR "weir/${name} is PURE and must not link ${impure}")
    endif()
    foreach(dep IN LISTS DEPS)
      if(NOT dep IN_LIST modules)
        message(SEND_ERROR "weir/${name} depends on '${dep}', which is not a module")
        continue()
      endif()
      string(REPLACE / _ target weir_${dep})
      get_target_property(dep_layer ${target} WEIR_LAYER)
      get_target_property(dep_pure ${target} WEIR_PURE)
      if(NOT dep_layer LESS LAYER)
        message(SEND_ERROR
          "weir/${name} (layer ${LAYER}) must not depend on weir/${dep} (layer ${dep_layer}): "
          "a module may depend only on lower layers")
      endif()
      if(PURE AND NOT dep_pure)
        message(SEND_ERROR "weir/${name} is PURE but depends on weir/${dep}, which is not")
      endif()
    endforeach()
  endforeach()
endfunction()
cmake_language(DEFER DIRECTORY ${PROJECT_SOURCE_DIR} CALL weir_check_layers)
