// SPDX-License-Identifier: Apache-2.0
//
// The exports of a server, by the file handles of their files:
//
//   configured   a prefix of handles and a name (NfsOptions::export_handles)
//   learned      from replies to MNT, if the form of the handles is known: the part that all files
//                of an export have in common, and the path that was mounted
//
// A configured name counts more than a learned one, and a longer prefix more than a shorter one. If
// several paths lead to an export, because a client may also mount a folder inside it, the name is
// the first of them, or a later one above it. Paths with a component . or .. are not learned: a
// client could choose the name.
//
// Bounds: kLearnedMax. A value; copied when an export is learned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "weir/classify/export_name.h"
#include "weir/nfs/codec/file_handle.h"
#include "weir/nfs/codec/xdr.h"
#include "weir/serve/options.h"

namespace weir::nfs {

class Exports {
 public:
  static constexpr std::size_t kLearnedMax = 4096;

  explicit Exports(const std::vector<serve::ExportHandle>& configured);

  bool empty() const { return configured_.empty() && learned_.empty(); }
  // Empty: not known.
  ExportName find(Bytes handle) const;

  // Whether there is something to learn from a successful MNT.
  enum class Lesson : std::uint8_t {
    kKnown,
    kNew,
    kUnknownForm,  // of the handle
    kNotAnExport,  // a folder, a path that is not plain, or too many exports
  };
  Lesson lesson(std::string_view path, Bytes root) const;
  // REQUIRES: lesson() is kNew.
  void learn(std::string_view path, Bytes root);

 private:
  struct Configured {
    std::vector<std::byte> prefix;
    ExportName name;
  };
  struct Learned {
    std::string path;
    ExportName name;
  };
  struct Hash {
    std::size_t operator()(const ExportPart& part) const { return part.hash(); }
  };

  std::vector<Configured> configured_;  // the longest prefix first
  absl::flat_hash_map<ExportPart, Learned, Hash> learned_;
};

}  // namespace weir::nfs
