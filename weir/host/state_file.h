// SPDX-License-Identifier: Apache-2.0
//
// A small text file that carries state from one run of a program to the next. It has one user at a
// time (an flock(2) held until the StateFile goes away) and is replaced whole: written beside,
// synced and renamed, so a crash leaves the old text or the new one and never half of either.
//
//   StateFile file = *StateFile::open("budget");     go on from file.text(); empty: a first run
//   file.replace(new_text);
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "weir/base/result.h"
#include "weir/host/fd.h"

namespace weir::host {

class StateFile {
 public:
  static constexpr std::size_t kSizeMax = std::size_t{1} << 17;

  // Creates the file, empty, when there is none. Fails early with everything that would make
  // replace() fail later: no permission, a folder, another user at work (EBUSY).
  static Result<StateFile> open(std::string path);

  // What it held when opened; empty when it is new.
  const std::string& text() const { return text_; }
  // On failure the file holds the old text; or, if its directory could not be synced, the new one,
  // which a power failure may undo.
  Result<void> replace(std::string_view text);

 private:
  StateFile(std::string path, Fd lock, std::string text)
      : path_(std::move(path)), lock_(std::move(lock)), text_(std::move(text)) {}

  std::string path_;
  Fd lock_;  // the file as it was opened
  std::string text_;
};

}  // namespace weir::host
