// SPDX-License-Identifier: Apache-2.0
//
// A small text file that carries state from one run of a program to the next. It has one user at a
// time (an flock(2) held until the StateFile goes away) and is replaced whole: written beside,
// synced and renamed, so a crash leaves the old text or the new one and never half of either. A new
// file is created the same way, complete: an existing empty file was emptied by someone else, and
// is_new() tells the two apart.
//
//   StateFile file = *StateFile::open("budget");     go on from file.text(); is_new(): a first run
//   file.replace(new_text);
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "weir/base/result.h"
#include "weir/host/fd.h"

namespace weir::host {

class StateFile {
 public:
  static constexpr std::size_t kSizeMax = std::size_t{1} << 24;

  // Who may read it: as the umask says, or its owner alone, for what is secret.
  enum class Readers : std::uint8_t { kByUmask, kOwner };

  // A file that does not exist is created by the first replace(). Fails early with everything that
  // would make replace() fail later: no permission, a folder, another user at work (EBUSY).
  static Result<StateFile> open(std::string path, Readers readers = Readers::kByUmask);

  // What it held when opened.
  const std::string& text() const { return text_; }
  // There was no file when it was opened.
  bool is_new() const { return is_new_; }
  // On failure the file holds the old text; or, if its directory could not be synced, the new one,
  // which a power failure may undo.
  Result<void> replace(std::string_view text);

 private:
  StateFile(std::string path, Readers readers, Fd lock, bool is_new, std::string text)
      : path_(std::move(path)),
        readers_(readers),
        lock_(std::move(lock)),
        is_new_(is_new),
        has_file_(!is_new),
        text_(std::move(text)) {}

  Result<Fd> open_beside();

  std::string path_;
  Readers readers_;
  Fd lock_;  // the file as it was opened; of a new one the file that it is renamed from
  bool is_new_;
  bool has_file_;
  std::string text_;
};

}  // namespace weir::host
