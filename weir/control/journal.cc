// SPDX-License-Identifier: Apache-2.0
#include "weir/control/journal.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "weir/base/assert.h"
#include "weir/base/crc32c.h"
#include "weir/base/quote.h"
#include "weir/host/durable.h"
#include "weir/host/file_lock.h"
#include "weir/host/files.h"

namespace weir::control {
namespace {

constexpr std::size_t kCrcDigits = 8;
constexpr mode_t kMode = 0600;

// Whether it is exactly what journal_line() writes.
bool is_sound(std::string_view line) {
  if (line.size() <= kCrcDigits) return false;
  const std::string_view record = line.substr(kCrcDigits + 1);
  return line.substr(0, kCrcDigits + 1) == fmt::format("{:08x} ", crc32c(record));
}

Result<void> write_all(int file, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return fail_errno(errno, quote(path));
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

Result<void> write_synced(const std::string& path, std::string_view text) {
  const host::Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kMode));
  if (file.get() < 0) return fail_errno(errno, quote(path));
  Result<void> written = write_all(file.get(), text, path);
  if (written && fdatasync(file.get()) != 0) written = fail_errno(errno, quote(path));
  if (!written) unlink(path.c_str());
  return written;
}

// Whether it can be an incomplete line of journal_line(). Lines contain printable text, and bytes
// beyond ASCII.
bool is_begun_line(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool is_hex = (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'f');
    const bool fits = i < kCrcDigits    ? is_hex
                      : i == kCrcDigits ? byte == ' '
                                        : byte >= ' ' && byte != 0x7F;
    if (!fits) return false;
  }
  return true;
}

std::size_t lines_in(std::string_view text) {
  std::size_t lines = 0;
  for (const char c : text) lines += c == '\n' ? 1 : 0;
  return lines + (text.empty() || text.ends_with('\n') ? 0 : 1);
}

}  // namespace

std::string journal_line(std::string_view record) {
  return fmt::format("{:08x} {}\n", crc32c(record), record);
}

JournalText read_journal(std::string_view text) {
  JournalText read;
  std::size_t number = 0;
  while (!text.empty()) {
    ++number;
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos && is_begun_line(text)) {
      read.torn = text.size();
      return read;
    }
    if (end == std::string_view::npos || !is_sound(text.substr(0, end))) {
      read.damaged_at = number;
      read.dropped = lines_in(text);
      const std::size_t last = text.find_last_not_of('\0');
      const std::size_t sound = last == std::string_view::npos ? 0 : last + 1;
      if (text.find('\n', 0) == std::string_view::npos) read.zeroes = text.size() - sound;
      return read;
    }
    read.records.emplace_back(text.substr(kCrcDigits + 1, end - kCrcDigits - 1));
    read.sound += end + 1;
    text.remove_prefix(end + 1);
  }
  return read;
}

namespace {

// Creates a missing file, complete and synced. A file that another server creates meanwhile is
// kept.
Result<void> create_file(const std::string& path, std::string_view text) {
  const std::string beside = fmt::format("{}.new.{}", path, getpid());
  if (auto written = write_synced(beside, text); !written) return written;
  int failed = renameat2(AT_FDCWD, beside.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE);
  if (failed != 0 && errno == EINVAL) failed = std::rename(beside.c_str(), path.c_str());
  const int error = failed == 0 ? 0 : errno;
  if (failed != 0) unlink(beside.c_str());
  if (error != 0 && error != EEXIST) return fail_errno(error, quote(path));
  return host::sync_directory_of(path);
}

bool is_at(int file, const std::string& path) {
  struct stat opened {};
  struct stat named {};
  return fstat(file, &opened) == 0 && stat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

std::vector<std::string> without_head(std::vector<std::string> records) {
  if (!records.empty() && records.front() == kJournalHead) records.erase(records.begin());
  return records;
}

}  // namespace

Result<void> replace_file(const std::string& path, std::string_view text) {
  const std::string beside = path + ".new";
  if (auto written = write_synced(beside, text); !written) return written;
  if (std::rename(beside.c_str(), path.c_str()) != 0) return fail_errno(errno, quote(path));
  return host::sync_directory_of(path);
}

// Opens and locks the file. While this waits for the lock, the previous server may replace the file
// with a shorter one.
Result<host::Fd> Journal::open_file(const std::string& path) {
  constexpr const char* kHint = "the journal needs a writable directory";
  for (;;) {
    host::Fd file(::open(path.c_str(), O_RDWR | O_APPEND | O_CLOEXEC));
    if (!file.is_open() && errno == ENOENT) {
      auto created = create_file(path, journal_line(kJournalHead));
      if (!created) {
        created.error().hint = kHint;
        return tl::unexpected(created.error());
      }
      continue;
    }
    if (!file.is_open()) return fail_errno(errno, quote(path), kHint);
    auto locked = host::lock_file(file.get(), host::LockKind::kExclusive, quote(path),
                                  "stop it, or name another journal with --journal");
    if (!locked) return tl::unexpected(locked.error());
    if (is_at(file.get(), path)) return file;
  }
}

Result<std::unique_ptr<Journal>> Journal::open(const std::string& path, Damage damage,
                                               Shorten shorten) {
  auto file = open_file(path);
  if (!file) return tl::unexpected(file.error());
  auto wake_fd = host::make_wake_fd();
  if (!wake_fd) return tl::unexpected(wake_fd.error());
  std::unique_ptr<Journal> journal(
      new Journal(path, std::move(*file), std::move(shorten), std::move(*wake_fd)));
  if (auto loaded = journal->load(damage); !loaded) return tl::unexpected(loaded.error());
  journal->shorten_if_long();
  journal->thread_ = std::thread([it = journal.get()] { it->run(); });
  return journal;
}

Result<void> Journal::load(Damage damage) {
  const auto text = host::read_file(path_);
  if (!text) return tl::unexpected(text.error());
  JournalText read = read_journal(*text);
  const bool is_lost = read.sound == 0 && read.damaged_at == 0;
  const bool is_damaged = read.damaged_at != 0 || is_lost;
  records_ = without_head(std::move(read.records));
  if (is_damaged && damage == Damage::kRefuse) {
    const std::string what =
        is_lost ? fmt::format("is {}: confirmed records are missing",
                              text->empty() ? "empty" : "without a whole line")
        : read.zeroes == 0
            ? fmt::format(
                  "line {} is damaged: {} records before it are intact, {} lines from it on "
                  "would be dropped",
                  read.damaged_at, records_.size(), read.dropped)
            : fmt::format(
                  "its last {} bytes are zero and may have held confirmed records: {} "
                  "records before them are intact",
                  read.zeroes, records_.size());
    return fail(std::errc::illegal_byte_sequence, quote(path_), what,
                "restore it, or start with --journal-repair to continue without them");
  }
  if (is_damaged) {
    if (auto kept = replace_file(path_ + ".damaged", *text); !kept) return kept;
    report_ = fmt::format(
        "journal {}: kept {} records, dropped {} lines from line {} on; the file "
        "before the repair is {}.damaged",
        quote(path_), records_.size(), read.dropped, std::max<std::size_t>(read.damaged_at, 1),
        path_);
  } else if (read.torn != 0) {
    report_ = fmt::format(
        "journal {}: kept {} records, dropped {} bytes of one that was never "
        "confirmed",
        quote(path_), records_.size(), read.torn);
  }
  size_ = read.sound;
  if (size_ == 0) return replace(records_);
  if (size_ == text->size()) return {};
  if (ftruncate(file_.get(), static_cast<off_t>(size_)) != 0 || fdatasync(file_.get()) != 0) {
    return fail_errno(errno, quote(path_));
  }
  return {};
}

// The path always names the complete old file or the complete new one, locked.
Result<void> Journal::replace(const std::vector<std::string>& records) {
  std::string text = journal_line(kJournalHead);
  for (const std::string& record : records) text += journal_line(record);
  const std::string beside = path_ + ".new";
  host::Fd file(::open(beside.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, kMode));
  if (file.get() < 0) return fail_errno(errno, quote(beside));
  Result<void> written = write_all(file.get(), text, beside);
  if (written && (flock(file.get(), LOCK_EX | LOCK_NB) != 0 || fdatasync(file.get()) != 0 ||
                  std::rename(beside.c_str(), path_.c_str()) != 0)) {
    written = fail_errno(errno, quote(beside));
  }
  if (!written) {
    unlink(beside.c_str());
    return written;
  }
  file_ = std::move(file);
  size_ = text.size();
  has_more_ = false;
  // Before this sync a crash could restore the old file, without later records.
  is_folder_synced_ = host::sync_directory_of(path_).has_value();
  return {};
}

// If a journal cannot be shortened, it stays unchanged, and the next attempt is made when it has
// doubled.
void Journal::shorten_if_long() {
  if (size_ < shorten_above_) return;
  if (const auto text = host::read_file(path_)) {
    const std::vector<std::string> records = without_head(read_journal(*text).records);
    const std::vector<std::string> fewer = shorten_(records);
    if (fewer.size() < records.size()) (void)replace(fewer);
  }
  shorten_above_ = std::max(kShortenAbove, 2 * size_);
}

Journal::~Journal() {
  if (!thread_.joinable()) return;
  (void)waiting_.put_always({});
  thread_.join();
}

void Journal::append(const std::vector<std::string>& records, Done done) {
  std::string lines;
  for (const std::string& record : records) lines += journal_line(record);
  const bool is_put = waiting_.put_always({std::move(lines), std::move(done)});
  WEIR_ASSERT(is_put);
}

// All records that arrived during the last sync share the next one.
void Journal::run() {
  for (bool is_ending = false; !is_ending;) {
    waiting_.wait(kNever);
    std::vector<Waiting> batch = waiting_.take();
    is_ending = !batch.empty() && batch.back().done == nullptr;
    if (is_ending) batch.pop_back();
    if (batch.empty()) continue;
    std::string text;
    for (const Waiting& one : batch) text += one.lines;
    const Result<void> written = write(text);
    for (const Waiting& one : batch) one.done(written);
    shorten_if_long();
  }
}

// On failure the file is restored; until that succeeds, nothing more is confirmed.
Result<void> Journal::write(const std::string& text) {
  if (auto ready = take_back(); !ready) return ready;
  if (!is_folder_synced_) {
    if (auto synced = host::sync_directory_of(path_); !synced) return synced;
    is_folder_synced_ = true;
  }
  has_more_ = true;
  Result<void> written = write_all(file_.get(), text, path_);
  if (written && fdatasync(file_.get()) != 0) written = fail_errno(errno, quote(path_));
  ++syncs_;
  if (!written) {
    (void)take_back();
    return written;
  }
  has_more_ = false;
  size_ += text.size();
  return {};
}

Result<void> Journal::take_back() {
  if (!has_more_) return {};
  if (ftruncate(file_.get(), static_cast<off_t>(size_)) != 0 || fdatasync(file_.get()) != 0) {
    return fail_errno(errno, quote(path_));
  }
  has_more_ = false;
  return {};
}

}  // namespace weir::control
