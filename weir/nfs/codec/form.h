// SPDX-License-Identifier: Apache-2.0
//
// The form of arguments and results as text, so that the tables of procedures and operations read
// like the protocol, and one small function steps over all of them. A COMPOUND has no length per
// operation, so only completely known forms can be stepped over.
//
//   16             that many bytes
//   o              an opaque or a string: length, bytes, padding
//   [4]            a counted array: number of elements, then each of them
//   {8o}           a linked list: a boolean before each element, false after the last
//   (1:8o|2,3:|*:4)  a union: its number, then the form for that number; `*` is for all others.
//                  A number without a form: the reader ends with kUnknown
//   b a ...        types that several operations share, see named() in form.cc
//
//   "12 8o (0:|1:(0,1:a|2:8|3:8a)) (0,3:o|1:4|2:16o|4,6:|5:16)"       the arguments of OPEN
//
// Spaces are ignored. Elements of arrays and lists take at least 4 bytes each, so a walk ends
// within the message whatever count it claims. Pure; no allocation; depth of recursion is that of
// the text.
#pragma once

#include <cstdint>
#include <string_view>

#include "weir/nfs/codec/xdr.h"

namespace weir::nfs {

// Steps over a value of this form; the state of the reader shows whether it was complete. Returns
// the number of the last union that is not inside another type; 0 if there was none.
// REQUIRES: the form is well-formed; otherwise an assertion fails.
std::uint32_t walk(XdrReader& reader, std::string_view form);

}  // namespace weir::nfs
