// SPDX-License-Identifier: Apache-2.0
//
// A small text file that keeps state between runs of a program. It has one user at a time (an
// flock(2) held as long as the StateFile exists) and is replaced atomically: a temporary file is
// written, synced and renamed, so that a crash leaves the old or the new text. A new file is
// created in the same way: an existing empty file was truncated by another program, and is_new()
// distinguishes the two cases.
//
//   StateFile file = *StateFile::open("budget");     continue from file.text(); is_new(): first run
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

  // Who may read it: according to the umask, or only its owner, for secrets.
  enum class Readers : std::uint8_t { kByUmask, kOwner };

  // A missing file is created by the first replace(). Fails early for everything that would make
  // replace() fail later: no permission, a folder, another user (EBUSY). Waits for a file that a
  // killed process still holds (holder.h).
  static Result<StateFile> open(std::string path, Readers readers = Readers::kByUmask);

  // Its content when it was opened.
  const std::string& text() const { return text_; }
  // The file did not exist when it was opened.
  bool is_new() const { return is_new_; }
  // On failure the file has the old text; or, if its directory could not be synced, the new text,
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
  Fd lock_;  // the opened file; for a new file, the temporary file that is renamed
  bool is_new_;
  bool has_file_;
  std::string text_;
};

}  // namespace weir::host
