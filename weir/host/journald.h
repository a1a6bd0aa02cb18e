// SPDX-License-Identifier: Apache-2.0
//
// Entries with fields for systemd's journal, in its native protocol: a datagram of KEY=VALUE lines.
// A value with a newline follows its key as eight bytes of length, in little endian, and the value.
// Names of clients can therefore not become fields.
//
//   if (is_journal(STDERR_FILENO, getenv("JOURNAL_STREAM"))) ...
//   JournalSocket(kJournalPath).send(journal_entry({{"PRIORITY", "4"}, {"MESSAGE", text}}));
//
// systemd sets JOURNAL_STREAM to the device and inode of the stream that it made (systemd.exec(5));
// it stays set in children whose standard error goes elsewhere, so both are compared.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "weir/host/fd.h"

namespace weir::host {

inline constexpr const char* kJournalPath = "/run/systemd/journal/socket";

struct LogField {
  std::string_view name;  // A-Z, 0-9 and _
  std::string value;
};

// Whether the descriptor is the stream that JOURNAL_STREAM names; nullptr: it is not set.
bool is_journal(int fd, const char* stream);

std::string journal_entry(std::span<const LogField> fields);

class JournalSocket {
 public:
  explicit JournalSocket(std::string path);

  // False if it could not be sent. Names the address each time: the journal can be restarted.
  bool send(std::string_view entry) const noexcept;

 private:
  std::string path_;
  Fd fd_;
};

}  // namespace weir::host
