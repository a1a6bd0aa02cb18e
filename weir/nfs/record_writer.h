// SPDX-License-Identifier: Apache-2.0
//
// Writes a message as a record to a queue, at once or while it arrives. A message whose length is
// known becomes one fragment, the usual form. A message that is longer than what is kept in memory
// and whose length is not known yet, because its sender uses several fragments, is forwarded in new
// fragments.
//
//   RecordWriter writer;
//   writer.begin(to, bytes, length);        length: of the whole message, if it is known
//   writer.begin_record(to, record);        with its mark
//   writer.add(to, bytes, is_last);
//
// One for each direction of a connection. REQUIRES: records do not overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "weir/base/big_endian.h"
#include "weir/nfs/codec/record.h"

namespace weir::nfs {

class RecordWriter {
 public:
  using Input = std::span<const std::byte>;

  // The first bytes of a message, or all of it.
  template <class To>
  void begin(To& to, Input bytes, std::optional<std::uint32_t> length) {
    in_fragments_ = !length;
    if (length) {
      const auto mark = record_mark(*length);
      if constexpr (requires { to.take(mark, bytes); }) {
        if (to.take(mark, bytes)) return;
      }
      to.append(mark);
      to.append(bytes);
    } else {
      add(to, bytes, false);
    }
  }

  // The same, with the mark of a message whose length is known.
  template <class To>
  void begin_record(To& to, Input record) {
    in_fragments_ = false;
    to.append(record);
  }

  template <class To>
  void add(To& to, Input bytes, bool is_last) {
    if (in_fragments_ && (is_last || !bytes.empty())) {
      constexpr std::uint32_t kLast = 1U << 31;
      std::array<std::byte, kRecordMarkBytes> mark{};
      store_be(mark.data(), static_cast<std::uint32_t>(bytes.size()) | (is_last ? kLast : 0));
      to.append(mark);
    }
    to.append(bytes);
  }

 private:
  bool in_fragments_ = false;
};

}  // namespace weir::nfs
