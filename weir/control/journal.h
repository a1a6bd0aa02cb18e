// SPDX-License-Identifier: Apache-2.0
//
// The journal of permanent changes, a file that is replayed at the next start. A record is a line:
//
//   CCCCCCCC TEXT\n          CRC-32C of TEXT in hex, and TEXT itself, which has no newline
//
// The first line is kJournalHead. A new file appears with it, so a journal is never empty: an empty
// file was truncated by another program.
//
// append() passes a record to a thread that writes all pending records at once and syncs them
// (fdatasync) before it confirms any: so a thousand changes per second cost a few dozen syncs, and
// confirmed records survive a crash. A failed write is removed again, and its callers get the
// reason; while it cannot be removed, every other write fails too.
//
// Reading: an incomplete line at the end of the file was never confirmed and is dropped. Any
// other damage makes open() fail, also bytes at the end that cannot start a line, such as
// zeroes, and a file without a whole line: confirmed records may have been there. With repair, the
// records before the damage are kept, the damaged file is saved as PATH.damaged, and a report
// states what was kept and dropped.
//
// A file larger than kShortenAbove and twice its size after the last rewrite is replaced by its
// effective records, which `shorten` computes; at the start and while the server runs.
//
// Any thread may append; `done` and `shorten` are called in the journal's own thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "weir/base/result.h"
#include "weir/host/fd.h"
#include "weir/host/mailbox.h"

namespace weir::control {

inline constexpr std::string_view kJournalHead = "weir journal 1";

// The content of a file.
struct JournalText {
  std::vector<std::string> records;
  std::size_t sound = 0;       // bytes of their lines
  std::size_t torn = 0;        // bytes of an incomplete last line
  std::size_t damaged_at = 0;  // the line, from 1; 0: none
  std::size_t dropped = 0;     // number of lines from there on
  std::size_t zeroes = 0;      // number of zero bytes at the end, if the damage is there
};
JournalText read_journal(std::string_view text);
std::string journal_line(std::string_view record);

class Journal {
 public:
  enum class Damage : std::uint8_t { kRefuse, kRepair };
  using Done = std::function<void(Result<void>)>;
  // Fewer records with the same effect.
  using Shorten = std::function<std::vector<std::string>(const std::vector<std::string>&)>;
  static constexpr std::uint64_t kShortenAbove = 64 << 10;

  // Creates the file if it is missing, and waits for one that a killed server still holds
  // (host/holder.h). EBUSY: another server uses it; EILSEQ: damaged.
  static Result<std::unique_ptr<Journal>> open(const std::string& path, Damage damage,
                                               Shorten shorten);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // The existing records; apply them in this order.
  const std::vector<std::string>& records() const { return records_; }
  // What was kept and what was dropped; empty if nothing was damaged.
  const std::string& report() const { return report_; }

  // All records or none. REQUIRES: no newline in them.
  void append(const std::vector<std::string>& records, Done done);
  // Number of syncs so far, to measure how well they are shared.
  std::uint64_t syncs() const { return syncs_; }

 private:
  struct Waiting {
    std::string lines;
    Done done;  // none: stops the journal
  };

  Journal(std::string path, host::Fd file, Shorten shorten, host::Fd wake_fd)
      : path_(std::move(path)),
        file_(std::move(file)),
        shorten_(std::move(shorten)),
        waiting_(std::move(wake_fd)) {}
  static Result<host::Fd> open_file(const std::string& path);
  Result<void> load(Damage damage);
  void run();
  Result<void> write(const std::string& text);
  Result<void> take_back();
  void shorten_if_long();
  Result<void> replace(const std::vector<std::string>& records);

  std::string path_;
  host::Fd file_;
  Shorten shorten_;
  std::uint64_t shorten_above_ = kShortenAbove;
  std::vector<std::string> records_;
  std::string report_;
  std::uint64_t size_ = 0;  // of confirmed records
  bool has_more_ = false;   // the file may be longer than size_
  bool is_folder_synced_ = true;
  std::atomic<std::uint64_t> syncs_ = 0;

  host::Mailbox<Waiting> waiting_;
  std::thread thread_;
};

// Replaces a file atomically: writes a temporary file, syncs and renames it. After a crash the file
// has the old or the new content.
Result<void> replace_file(const std::string& path, std::string_view text);

}  // namespace weir::control
