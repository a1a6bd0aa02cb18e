# SPDX-License-Identifier: Apache-2.0
#
# cmake -DNAME=pace -DPURE=TRUE -DPARTS= -DDEPS=base -DTEST_DEPS= -DLIBRARIES=fmt::fmt
#       -DTEST_LIBRARIES= -DFILES=... -P check_includes.cmake
# Every #include of a module must be covered by its weir_module() declaration, and every
# declaration must be used: under TEST_ only by tests, otherwise by other files. The headers of a
# PURE module are searched for names of the operating system too: an inline function that is not
# called yet leaves no trace in the archive for check_symbols.sh to find.
cmake_minimum_required(VERSION 3.25)

# Headers that a PURE module may include: those of the C++ library without clocks, random numbers,
# threads and the system, and the libraries it may link. Its tests and benchmarks may use their
# frameworks too.
set(cxx_library "^[a-z_0-9]+$")
set(impure_headers
  "thread|mutex|shared_mutex|condition_variable|future|semaphore|barrier|latch|stop_token|execution"
  "random|iostream|fstream|filesystem|syncstream|ctime|csignal")
list(JOIN impure_headers "|" impure_headers)
set(pure_libraries
  "^fmt/(core|format|chrono|compile|ranges)\\.h$|^absl/(container|hash)/|^boost/intrusive/"
  "^tl/expected\\.hpp$")
list(JOIN pure_libraries "|" pure_libraries)
set(frameworks "^(gtest|gmock|benchmark|rapidcheck)[/.]")

# Names that are never allowed. Durations and time points of <chrono> are allowed; its clocks
# are not.
set(outside_names
  "(steady|system|high_resolution|file|utc|tai|gps)_clock|clock_gettime|gettimeofday|timespec_get"
  "nanosleep|clock_nanosleep|this_thread|pthread_[a-z_]+|random_device|getrandom|[a-z0-9_]*rdtscp?"
  "syscall|std::(thread|jthread|mutex|shared_mutex|async)")
list(JOIN outside_names "|" outside_names)

# Libraries that only these modules may use: "header prefix>module|module".
set(homes "liburing>host" "gnutls/>host" "spdlog/>host" "grpc>cluster" "google/protobuf>cluster"
          "boost/asio>control" "boost/beast>control" "toml\\+\\+>config"
          "nlohmann/>config|control|embed|study" "CLI/>")

# Headers that only these modules may include: "header>module|module". The internals of policies are
# for the Gate and the Target, which is the only way to them.
set(inner "weir/schedule/(fifo|crrn|tbf[a-z_]*|rule_engine)(\\.h|/)>schedule|target")

# Headers that show that a library is used: "library>headers".
set(library_headers
  "fmt::fmt>fmt/" "tl::expected>tl/expected" "absl::core_headers>absl/base/"
  "absl::flat_hash_map>absl/container/flat_hash_map" "absl::btree>absl/container/btree"
  "absl::flat_hash_set>absl/container/flat_hash_set" "Boost::headers>boost/"
  "Threads::Threads>(thread|mutex|condition_variable|future|pthread\\.h)$" "uring>liburing"
  "gnutls>gnutls/" "grpc++>grpcpp/" "grpc>grpc/" "gpr>grpc/" "protobuf>google/protobuf|weir/.*\\.pb"
  "nlohmann_json::nlohmann_json>nlohmann/")

list(TRANSFORM PARTS PREPEND ${NAME}/ OUTPUT_VARIABLE parts)
set(failed FALSE)
# Modules and headers that are included, by tests or by others.
set(used)
set(used_by_tests)
set(headers)
set(headers_by_tests)
macro(refuse text)
  string(STRIP "${line}" line)
  message("${file}: ${text}\n    ${line}")
  set(failed TRUE)
endmacro()

# The text that the compiler sees: no comments, lines joined, directives in one form. Brackets and
# semicolons are removed too, because a CMake list cannot contain them.
function(read_code file result)
  file(READ ${file} text)
  string(REGEX REPLACE "\\\\\r?\n" "" text "${text}")
  string(REGEX REPLACE "//[^\n]*" "" text "${text}")
  string(REGEX REPLACE "/\\*([^*]|\\*+[^*/])*\\*+/" " " text "${text}")
  string(REGEX REPLACE "[][;]" " " text "${text}")
  string(REPLACE "%:" "#" text "${text}")
  string(REPLACE "\n" " \n" text "\n${text}\n")
  set(${result} "${text}" PARENT_SCOPE)
endfunction()

foreach(file IN LISTS FILES)
  set(by)
  set(allowed ${DEPS} ${parts})
  if(file MATCHES "_(test|bench|fuzz)\\.(cc|h)$")
    set(by _by_tests)
    list(APPEND allowed ${TEST_DEPS})
  endif()
  read_code(${file} text)
  string(REGEX MATCHALL "\n[ \t]*#[ \t]*(include|import)[^\n]*" lines "${text}")
  # So a header with a source is compiled on its own, and only the others need a check.
  cmake_path(REPLACE_EXTENSION file h OUTPUT_VARIABLE own)
  cmake_path(GET own FILENAME own)
  if(file MATCHES "\\.cc$" AND "${FILES}" MATCHES "/${own}(;|$)")
    set(line)
    if(lines)
      list(GET lines 0 line)
    endif()
    if(NOT line MATCHES "\"weir/${NAME}/([a-z]+/)?${own}\"")
      refuse("the first include of a source is its own header")
    endif()
  endif()
  foreach(line IN LISTS lines)
    if(NOT line MATCHES "#[ \t]*include[ \t]*([<\"])([^>\"]+)[>\"]")
      refuse("an include must name its file")
      continue()
    endif()
    set(quote "${CMAKE_MATCH_1}")
    set(header "${CMAKE_MATCH_2}")
    list(APPEND headers${by} ${header})
    if(quote STREQUAL "\"" OR header MATCHES "^(weir|\\.*)/|/\\.+/")
      if(NOT quote STREQUAL "\"" OR
         NOT header MATCHES "^weir/([a-z]+(/[a-z]+)?)/[a-z0-9_]+(\\.(grpc\\.)?pb)?\\.h$")
        refuse("write headers of Weir as \"weir/<module>/<file>.h\"")
      elseif(NOT CMAKE_MATCH_1 STREQUAL NAME AND NOT CMAKE_MATCH_1 IN_LIST allowed)
        refuse("weir/${NAME} includes weir/${CMAKE_MATCH_1}, which is not in its DEPS (${DEPS})")
      else()
        list(APPEND used${by} ${CMAKE_MATCH_1})
      endif()
    elseif(PURE AND NOT header MATCHES "${pure_libraries}"
           AND NOT (file MATCHES "_(test|bench|fuzz)\\.cc$" AND header MATCHES "${frameworks}")
           AND (NOT header MATCHES "${cxx_library}" OR header MATCHES "^(${impure_headers})$"))
      refuse("weir/${NAME} is PURE and must not include <${header}>")
    endif()
    foreach(home IN LISTS homes inner)
      string(REGEX MATCH "^(.*)>(.*)$" _ "${home}")
      set(prefix "${CMAKE_MATCH_1}")
      set(place "${CMAKE_MATCH_2}")
      if(header MATCHES "^${prefix}" AND NOT NAME MATCHES "^(${place})$")
        refuse("<${header}> may be used only in ('${place}'; empty: apps/)")
      endif()
    endforeach()
  endforeach()
  if(PURE AND NOT file MATCHES "_(test|bench|fuzz)\\.cc$")
    string(REGEX REPLACE "\"([^\"\\\n]|\\\\.)*\"" "\"\"" text "${text}")
    string(REGEX MATCHALL
      "\n([^\n]*[^A-Za-z0-9_\n])?(${outside_names})[^A-Za-z0-9_\n][^\n]*" lines "${text}")
    foreach(line IN LISTS lines)
      refuse("weir/${NAME} is PURE and must not use names of the operating system")
    endforeach()
  endif()
endforeach()

# Whether any of the headers belongs to the library.
function(find_library_use library result)
  set(prefix)
  foreach(one IN LISTS library_headers)
    string(REGEX MATCH "^([^>]*)>(.*)$" _ "${one}")
    if(CMAKE_MATCH_1 STREQUAL library)
      set(prefix "${CMAKE_MATCH_2}")
    endif()
  endforeach()
  if(NOT prefix)
    message(FATAL_ERROR "weir/${NAME} links ${library}: name its headers in check_includes.cmake")
  endif()
  list(FILTER ARGN INCLUDE REGEX "^(${prefix})")
  list(LENGTH ARGN count)
  set(${result} ${count} PARENT_SCOPE)
endfunction()
# Both are counts.
macro(refuse_unused what where uses uses_by_tests)
  if(${uses} EQUAL 0 AND ${uses_by_tests} EQUAL 0)
    message("weir/${NAME} declares ${what} in its ${where} but includes none of its "
            "headers; remove it")
    set(failed TRUE)
  elseif(${uses} EQUAL 0)
    message("weir/${NAME} declares ${what} in its ${where}, which only tests include; "
            "declare it in its TEST_${where}")
    set(failed TRUE)
  endif()
endmacro()
function(count_of what result)
  list(FILTER ARGN INCLUDE REGEX "^${what}$")
  list(LENGTH ARGN count)
  set(${result} ${count} PARENT_SCOPE)
endfunction()
foreach(dep IN LISTS DEPS)
  count_of(${dep} uses ${used})
  count_of(${dep} uses_by_tests ${used_by_tests})
  refuse_unused(${dep} DEPS ${uses} ${uses_by_tests})
endforeach()
foreach(dep IN LISTS TEST_DEPS)
  count_of(${dep} uses ${used_by_tests})
  refuse_unused(${dep} TEST_DEPS ${uses} 0)
endforeach()
foreach(library IN LISTS LIBRARIES)
  find_library_use(${library} uses ${headers})
  find_library_use(${library} uses_by_tests ${headers_by_tests})
  refuse_unused(${library} SYSTEM ${uses} ${uses_by_tests})
endforeach()
foreach(library IN LISTS TEST_LIBRARIES)
  find_library_use(${library} uses ${headers_by_tests})
  refuse_unused(${library} TEST_SYSTEM ${uses} 0)
endforeach()
if(failed)
  message(FATAL_ERROR "weir/${NAME} violates the layering (see docs/life-of-a-request.md)")
endif()
