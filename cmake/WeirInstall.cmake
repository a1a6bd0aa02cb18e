# SPDX-License-Identifier: Apache-2.0
#
# Installation: the modules as weir::<module> for find_package(weir) and as one pkg-config package,
# the headers, the binary and its manual.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/weir)
install(EXPORT weir NAMESPACE weir:: DESTINATION ${package_dir} FILE weir-targets.cmake)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/weir-config.cmake.in weir-config.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(weir-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/weir-config.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/weir-config-version.cmake
        DESTINATION ${package_dir})

# Static archives are searched in order, so the upper layers are first.
get_property(modules GLOBAL PROPERTY WEIR_ARCHIVES)
foreach(name IN LISTS modules)
  get_target_property(layer weir_${name} WEIR_LAYER)
  list(APPEND by_layer "${layer}-lweir_${name}")
endforeach()
# So that `cmake --install` works after building only weir, which does not link all of them.
foreach(name IN LISTS modules)
  add_dependencies(weir weir_${name})
endforeach()
list(SORT by_layer COMPARE NATURAL ORDER DESCENDING)
list(TRANSFORM by_layer REPLACE "^[0-9]+" "")
list(JOIN by_layer " " WEIR_PC_LIBS)
# Dependencies of the archives, by their pkg-config names; headers need none.
set(pc_of_fmt::fmt fmt)
set(pc_of_uring liburing)
set(pc_of_gnutls gnutls)
set(pc_of_grpc++ grpc++)
set(pc_of_grpc grpc)
set(pc_of_gpr grpc) # is part of it
set(pc_of_protobuf protobuf)
set(pc_of_absl::flat_hash_map absl_flat_hash_map)
set(pc_of_absl::flat_hash_set absl_flat_hash_set)
set(pc_of_absl::btree absl_btree)
set(pc_of_absl::core_headers absl_core_headers)
set(without_package "^(weir_.*|tl::expected|Boost::headers|Threads::Threads)$|BUILD_INTERFACE")
set(packages)
foreach(name IN LISTS modules)
  get_target_property(libraries weir_${name} LINK_LIBRARIES)
  foreach(library IN LISTS libraries)
    if(library MATCHES "${without_package}")
      continue()
    elseif(NOT DEFINED pc_of_${library})
      message(FATAL_ERROR
        "weir_${name} links ${library}: add its pkg-config package to WeirInstall.cmake")
    endif()
    list(APPEND packages ${pc_of_${library}})
  endforeach()
endforeach()
list(REMOVE_DUPLICATES packages)
list(SORT packages)
list(JOIN packages " " WEIR_PC_REQUIRES)
# The prefix is relative to weir.pc, so an installed tree can be moved.
file(RELATIVE_PATH WEIR_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${PROJECT_SOURCE_DIR}/cmake/weir.pc.in weir.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/weir.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# The example configuration with every key; weir.conf(5) refers to it.
install(FILES ${PROJECT_SOURCE_DIR}/docs/weir.conf.example DESTINATION ${CMAKE_INSTALL_DOCDIR})
