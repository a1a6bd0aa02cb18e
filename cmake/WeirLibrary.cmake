# SPDX-License-Identifier: Apache-2.0
#
# What runs on other systems than the one it was built on: libweir.so.0, the library for C programs
# (weir/embed/weir.h), which needs only Abseil and the C++ library; and weir-lustre, a static
# program with the commands of apps/weir/lustre*.cc, for Lustre servers.
#
# Both are linked from the archives of the modules without the libraries that those depend on: the
# linker removes functions that nothing calls, and fails if a remaining one needs a missing library.
# Not with sanitizers, which need their own libraries. Without static libraries of Abseil, as on
# Enterprise Linux, there is no weir-lustre.
if(WEIR_SANITIZE)
  return()
endif()
find_library(WEIR_STATIC_ABSEIL libabsl_raw_hash_set.a)
set(abseil absl_raw_hash_set absl_hash absl_city absl_low_level_hash absl_throw_delegate
    absl_raw_logging_internal)

add_library(weir_fmt STATIC ${CMAKE_CURRENT_LIST_DIR}/static_fmt.cc)
target_compile_features(weir_fmt PRIVATE cxx_std_20)
target_compile_options(weir_fmt PRIVATE -fPIC)

# weir_link_archives(<target> MODULES <module>... [WHOLE <module>])
# Their archives only; every function of WHOLE is kept.
function(weir_link_archives target)
  cmake_parse_arguments(PARSE_ARGV 1 L "" "WHOLE" "MODULES")
  set(archives)
  foreach(name IN LISTS L_MODULES)
    list(APPEND archives $<TARGET_FILE:weir_${name}>)
    add_dependencies(${target} weir_${name})
    set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS $<TARGET_FILE:weir_${name}>)
  endforeach()
  if(L_WHOLE)
    set(whole -Wl,--whole-archive $<TARGET_FILE:weir_${L_WHOLE}> -Wl,--no-whole-archive)
  endif()
  target_link_libraries(${target} PRIVATE ${whole} -Wl,--start-group ${archives} -Wl,--end-group
                        weir_fmt ${abseil})
  target_link_options(${target} PRIVATE -Wl,--gc-sections)
endfunction()

# ---- libweir.so.0 ----

set(c_modules embed target adapt schedule account pace classify host base)
foreach(name IN LISTS c_modules)
  set_target_properties(weir_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  # Calls within the library go directly to their functions, as in a program.
  target_compile_options(weir_${name} PRIVATE
                         $<$<CXX_COMPILER_ID:GNU>:-fno-semantic-interposition>)
endforeach()
set(map ${PROJECT_SOURCE_DIR}/weir/embed/weir.map)
file(CONFIGURE OUTPUT empty.cc CONTENT "") # a library needs a source; written only once
add_library(weir_c SHARED ${CMAKE_CURRENT_BINARY_DIR}/empty.cc)
set_target_properties(weir_c PROPERTIES OUTPUT_NAME weir EXPORT_NAME c
                      VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
weir_link_archives(weir_c MODULES ${c_modules} WHOLE embed)
target_link_options(weir_c PRIVATE -Wl,--version-script=${map} -Wl,-z,defs)
set_property(TARGET weir_c APPEND PROPERTY LINK_DEPENDS ${map})

add_dependencies(product weir_c)
add_dependencies(weir weir_c) # so that `cmake --install` works after building only weir
target_include_directories(weir_c INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
install(TARGETS weir_c EXPORT weir-c)
install(FILES ${PROJECT_SOURCE_DIR}/weir/embed/weir.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# Its own packages, because those of the C++ library (WeirInstall.cmake) need other packages.
install(EXPORT weir-c NAMESPACE weir:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/weir-c
        FILE weir-c-config.cmake)
include(CMakePackageConfigHelpers)
write_basic_package_version_file(weir-c-config-version.cmake COMPATIBILITY SameMinorVersion)
file(RELATIVE_PATH WEIR_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${CMAKE_CURRENT_LIST_DIR}/weir-c.pc.in weir-c.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/weir-c-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/weir-c)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/weir-c.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# ---- weir-lustre ----

if(NOT WEIR_STATIC_ABSEIL)
  return()
endif()
find_package(CLI11 REQUIRED)

# All that the commands need.
set(lustre_modules commands lustre control config serve coordinate target schedule adapt lock
    account pace classify host base)
add_executable(weir_lustre_static ${PROJECT_SOURCE_DIR}/apps/weir/before_main.cc
               ${PROJECT_SOURCE_DIR}/apps/weir/main_lustre.cc)
set_target_properties(weir_lustre_static PROPERTIES OUTPUT_NAME weir-lustre)
target_compile_features(weir_lustre_static PRIVATE cxx_std_20)
target_include_directories(weir_lustre_static PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(weir_lustre_static PRIVATE CLI11::CLI11)
target_link_options(weir_lustre_static PRIVATE -static)
weir_link_archives(weir_lustre_static MODULES ${lustre_modules})
add_dependencies(product weir_lustre_static)
