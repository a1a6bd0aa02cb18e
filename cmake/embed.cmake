# SPDX-License-Identifier: Apache-2.0
#
# cmake -DMODULE=study -DFILES=... -DOUTPUT=files.cc -P embed.cmake: writes C++ that contains the
# files as raw literals; the compiler joins the pieces of one. A piece is within the size that every
# compiler must accept.
cmake_minimum_required(VERSION 3.25)

set(piece_max 15000)
set(code "// Generated from the files named below.\n#include \"weir/${MODULE}/embedded.h\"\n\n")
string(APPEND code "namespace weir::${MODULE} {\n\n")
string(APPEND code "std::span<const EmbeddedFile> embedded_files() {\n")
string(APPEND code "  static constexpr EmbeddedFile kFiles[] = {\n")
foreach(file IN LISTS FILES)
  get_filename_component(name ${file} NAME)
  file(READ ${file} text)
  if(text MATCHES "\\)weir\"")
    message(FATAL_ERROR "${file}: contains the delimiter of a raw string literal")
  endif()
  string(APPEND code "      {\"${name}\",\n")
  string(LENGTH "${text}" left)
  set(at 0)
  while(left GREATER 0)
    string(SUBSTRING "${text}" ${at} ${piece_max} piece)
    string(APPEND code "R\"weir(${piece})weir\"\n")
    math(EXPR at "${at} + ${piece_max}")
    math(EXPR left "${left} - ${piece_max}")
  endwhile()
  string(APPEND code "      },\n")
endforeach()
string(APPEND code "  };\n  return kFiles;\n}\n\n}  // namespace weir::${MODULE}\n")
file(WRITE ${OUTPUT} "${code}")
